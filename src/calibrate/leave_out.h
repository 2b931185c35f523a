// Every publication predicted as if its runs were not known: constants are fitted to the others. What that shows is how
// far a forecast may be from a run that nobody has published yet.
//
//   leave_out(files, validate_measured(files), {.rules = rules, .held_out = {"new.csv"}})
//
// A publication is a `set` of a table in the words of the command line, else a table. Constants are refitted without its
// rows by the slopes around their present values (calibrate.h), pulled to their priors; its rows are simulated with the
// result. Publications that nothing was fitted to (`held_out`) are predicted with the present constants. Likewise every
// row is predicted without all rows of its device, and of devices that share constants with it.
//
// Intervals of a publication's rows come from the rows of the other publications, at the distance (uncertainty.h) that a
// row has from these. The spread, for forecasts, comes from the rows of all publications, each left out.
// Cost: three simulations of every row, and one per constant that it depends on.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "calibrate/calibrate.h"
#include "forecast/uncertainty.h"
#include "validate/validate.h"

namespace weft {

// A row's log(measured / predicted) with the present constants, and with those fitted without its publication or device.
struct LeftOutRow {
  std::string publication;
  RunKind kind;
  double present = 0, left_out = 0, device_left_out = 0;
  Distance distance{};    // from the other publications
  double half_width = 0;  // of its interval

  bool within() const;
};

struct LeftOutScore {
  std::string name;  // of the publication; empty: the mean over publications
  int rows = 0;
  double present = 0, left_out = 0;  // mean errors of time
  double within = 0;                 // share of rows within their interval
  double half_width = 0;             // median of the intervals
};

struct LeftOut {
  std::vector<LeftOutRow> rows;
  std::vector<LeftOutScore> publications;
  LeftOutScore mean, all;  // over publications; over rows
  Spread spread;
};

// Distances, intervals, scores and spread of rows that have their errors. `memory`: log(measured / predicted) of runs.
LeftOut scored(std::vector<LeftOutRow> rows, const std::vector<double>& memory);

// An error if there are no rows of two publications.
Result<LeftOut> leave_out(const std::vector<MeasuredFile>& files, const Validation& validation,
                          CalibrateOptions options);

std::string describe(const LeftOut& found);     // as text
std::string markdown_of(const LeftOut& found);  // for docs/accuracy.md
nlohmann::json to_json(const LeftOut& found);

}  // namespace weft
