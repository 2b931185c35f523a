// Predicted against measured: every row of tables of real runs is planned, simulated and compared.
//
//   read_measured(path) for each file, then validate_measured(files)
//
// Errors are signed fractions of time, predicted / measured − 1; throughputs are inverted first. Memory is compared
// with the kind that the source measured: allocated, reserved or device total. Kendall's τ is computed within groups of
// rows that differ in the plan alone: one source, model, device, count of devices, batch, sequence and type.
//
// Rows that cannot be planned are skipped, each with its reason. Rows run in parallel; the outcome does not depend on
// the number of threads. Cost: one forecast per row, and one more, recorded, for each of the worst.
#pragma once

#include <atomic>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "forecast/timeline.h"
#include "forecast/uncertainty.h"
#include "validate/curves.h"
#include "validate/expert_layers.h"
#include "validate/mapping.h"
#include "validate/score.h"

namespace weft {

struct Prediction {
  std::string file;
  int line = 0;
  std::string source, model, gpu;  // of a row with the command line's options: its set, model and cluster
  std::int64_t gpus = 0;
  PlanRequest request;
  std::vector<std::string> overrides;
  std::string group;     // rows of one group differ in the plan alone
  std::string scaling;   // rows with the same key differ in the number of devices alone, with the same batch per device
  std::string set = {};  // rows of several files that are scored together; empty: none
  std::string publication = {};
  RunKind kind = {};
  bool timed = true;  // its time is scored; otherwise only its scaling
  Measure measure{};
  double measured_s = 0, predicted_s = 0;
  double error = 0;            // of time: predicted / measured − 1
  TimeInterval interval = {};  // of the predicted time
  MemoryKind memory{};
  std::optional<double> measured_gib = {}, predicted_gib = {};
  double memory_error = 0;
  bool feasible = true;
  Fit fit = Fit::Fits;
  bool within() const { return interval.low_s <= measured_s && measured_s <= interval.high_s; }
  std::vector<std::string> notes = {};  // of the job: stand-ins for what devices lack, networks
  // For the worst rows only.
  std::optional<StepBreakdown> breakdown = {};
  std::vector<std::pair<std::string, double>> path = {};  // seconds on the critical path, largest first
};

// Mean and median errors are those of rows whose time is scored; rows of frameworks that are not modelled are separate.
struct TableScore {
  std::string name;  // of a file or a set; empty: all
  int rows = 0, skipped = 0;
  double mape = 0, median_ape = 0, bias = 0;  // bias: the mean signed error
  int untimed = 0;                            // rows of which only scaling is scored, …
  double untimed_mape = 0;                    // … and the errors of their times, for information
  int scaling_pairs = 0;                      // pairs of rows on one device and on eight that differ in nothing else
  double scaling_mape = 0;                    // error of the ratio of their times
  Concordance order;
  int groups = 0;           // of two rows or more
  double worst_regret = 0;  // of groups of five rows or more
  double within = 0;        // share of rows with the measured time in their interval
  double half_width = 0;    // median of the intervals
  int called_out = 0;       // rows that ran, and that are said not to fit
  int memory_rows = 0;
  double memory_mape = 0, memory_median_ape = 0;
};

struct Validation {
  std::vector<TableScore> files, sets;
  TableScore total;
  std::vector<SkippedRow> skipped;      // by file and line
  std::vector<Prediction> predictions;  // by file and line
  std::vector<std::size_t> worst;       // indices into predictions, worst first
  std::vector<CurveValidation> curves = {};
  std::vector<LayerValidation> layers = {};
};

struct ValidateOptions {
  MappingRules rules = {};                       // for rows as publications print them
  std::string stack = {};                        // overrides rows and rules; empty: it does not
  std::size_t worst = 10;                        // number of worst rows with a breakdown
  int threads = 0;                               // 0: as many as the machine has
  const Calibration* calibration = nullptr;      // of the cost model; none: the built-in constants
  const std::atomic<bool>* cancelled = nullptr;  // set by a user to stop; rows not yet predicted are skipped
};

Validation validate_measured(const std::vector<MeasuredFile>& files, const ValidateOptions& options = {});

std::string describe(const Validation& validation);     // as text
std::string plot_of(const Validation& validation);      // a page of HTML: every row, measured across, predicted up
std::string markdown_of(const Validation& validation);  // the scores, for docs/accuracy.md
nlohmann::json to_json(const Validation& validation);   // docs/schema/validate.schema.json

}  // namespace weft
