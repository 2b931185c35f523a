// Constants fitted to measured runs: of devices, links and named software stacks. Start here.
//
//   read_measured(path) for each file, then calibrate(files, options)
//
// Every row is planned and compiled once. At a point, each constant is perturbed and the rows that depend on it are
// priced and simulated again: that gives every row's time as a product of powers (fit.h), on which a pattern search
// minimises a robust loss with regularisation towards priors. The rows are simulated at the minimum; a point that is no
// better halves the trust region. A few such rounds.
//
// Cross-validation: the same is fitted without the rows of each table (of each source, if there is one table), and to
// runs of at most 4 devices, and the rows left out are predicted with that.
//
// The outcome depends on the files and options alone. Cost: a few hundred to a thousand simulations of rows.
// Not here: constants of single operators, which whole runs do not determine (tools/, src/cost).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/constants.h"
#include "validate/mapping.h"

namespace weft {

struct CalibrateOptions {
  MappingRules rules = {};                 // for rows as publications print them
  std::vector<std::string> only = {};      // names of constants, or prefixes with a star; none: all
  std::vector<std::string> held_out = {};  // names of tables that nothing is fitted to
  bool from_priors = false;                // regularise towards the list's priors; else towards the present constants
  bool cross_validate = true;
  int rounds = 4;
  int threads = 0;         // 0: as many as the machine has
  Calibration start = {};  // the present constants
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

struct FittedValue {
  FittedConstant constant;
  double present = 0, pulled_to = 0, fitted = 0;
  int rows = 0;          // fitted rows that depend on it
  double power = 0;      // mean over those rows of |d log time / d log constant|
  std::string evidence;  // "41 rows of a.csv, 8 of b.csv"
};

// Errors of the times of some rows: with the present constants, with the values that the fit is regularised towards,
// and with the fitted ones.
struct FitScore {
  std::string name;
  int rows = 0;
  double present = 0, pulled_to = 0, fitted = 0;
};

struct CalibrationResult {
  std::vector<FittedValue> constants;  // in the order of the list, without those that no row depends on
  std::vector<std::string> untouched;  // names of constants that no row depends on
  std::vector<FitScore> files;         // all rows fitted
  std::vector<FitScore> left_out;      // rows left out of a fit: "without a.csv", "at most 4 devices → 64 and more"
  std::vector<SkippedRow> skipped;     // cells that could not be read, rows that could not be planned
  int rows = 0, simulations = 0;
  Calibration calibration;
};

// An error if there is nothing to fit, or no row depends on a constant.
Result<CalibrationResult> calibrate(const std::vector<MeasuredFile>& files, const CalibrateOptions& options = {});

std::string overlay_of(const CalibrationResult& result);  // the file for --calibration
std::string describe(const CalibrationResult& result);    // as text
std::string json_of(const CalibrationResult& result);

}  // namespace weft
