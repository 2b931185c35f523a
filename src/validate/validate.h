// Predicted against measured: every row of tables of real runs is planned, simulated and compared.
//
//   read_measured(path) for each file, then validate_measured(files)
//
// Errors are signed fractions of time, predicted over measured less one; throughputs are inverted first. Memory is
// compared with what the source measured: allocated, reserved or device total. Kendall's τ is taken within groups that
// differ in the plan alone: one source, model, device, count of devices, batch, sequence and type.
//
// Rows that cannot be planned are skipped, each with its reason. Rows run side by side; the outcome does not depend on
// how many do. Cost: one forecast per row, and one more, recorded, for each of the worst.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "forecast/timeline.h"
#include "validate/curves.h"
#include "validate/layers.h"
#include "validate/mapping.h"
#include "validate/score.h"

namespace weft {

struct Prediction {
  std::string file;
  int line = 0;
  std::string source, model, gpu;  // of a row in the words of the command line: its set, model and cluster
  std::int64_t gpus = 0;
  PlanRequest request;
  std::vector<std::string> overrides;
  std::string group;     // rows of one group differ in the plan alone
  std::string scaling;   // rows of one key differ in the number of devices alone, each with the same batch
  std::string set = {};  // rows of several files that are scored together; empty: none
  bool timed = true;     // its time counts; otherwise only how it scales
  Measure measure{};
  double measured_s = 0, predicted_s = 0;
  double error = 0;  // of time: predicted / measured − 1
  MemoryKind memory{};
  std::optional<double> measured_gib = {}, predicted_gib = {};
  double memory_error = 0;
  bool feasible = true;
  // Of the worst rows, where the time goes.
  std::optional<StepBreakdown> breakdown = {};
  std::vector<std::pair<std::string, double>> path = {};  // most first, seconds on the critical path
};

// Mean and median errors are those of rows whose time counts; rows of frameworks that are not modelled are told apart.
struct TableScore {
  std::string name;  // of a file or a set; empty: all
  int rows = 0, skipped = 0;
  double mape = 0, median_ape = 0, bias = 0;  // bias: the mean signed error
  int untimed = 0;                            // rows of which only scaling counts, …
  double untimed_mape = 0;                    // … and how far their times are off, for information
  int scaling_pairs = 0;                      // rows of one device and of eight that differ in nothing else
  double scaling_mape = 0;                    // error of the ratio of their times
  Concordance order;
  int groups = 0;           // of two rows or more
  double worst_regret = 0;  // of groups of five rows or more
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
  MappingRules rules = {};                   // what rows of publications mean
  std::string stack = {};                    // instead of what rows and rules say
  std::size_t worst = 10;                    // rows that are told where their time goes
  int threads = 0;                           // 0: as many as the machine has
  const Calibration* calibration = nullptr;  // of the cost model; none: the built-in constants
};

Validation validate_measured(const std::vector<MeasuredFile>& files, const ValidateOptions& options = {});

std::string describe(const Validation& validation);     // for people
std::string plot_of(const Validation& validation);      // a page of HTML: every row, measured across, predicted up
std::string markdown_of(const Validation& validation);  // the scores, for docs/accuracy.md
std::string json_of(const Validation& validation);      // docs/schema/validate.schema.json

}  // namespace weft
