// weft run --compare and --trace: what was predicted of a run, and what its ranks measured beside it.
#pragma once

#include <optional>
#include <string>

#include "base/whole_file.h"
#include "cli/cost_arguments.h"
#include "validate/run_comparison.h"

namespace weft {

struct CompareArguments {
  bool compare = false;
  std::string trace;
  CostArguments cost;

  bool wanted() const { return compare || !trace.empty(); }
};
void add_compare_arguments(CLI::App& command, CompareArguments& arguments);
Status check(const CompareArguments& arguments);

// Made before ranks start, so that what cannot be predicted or written is told at once.
class PredictedRun {
 public:
  // Of the program that ranks play: every device by itself.
  static Result<PredictedRun> make(const CompareArguments& arguments, Plan plan, CompiledStrategy compiled);
  // With the timelines that ranks left in the directory; writes the trace.
  struct Compared {
    RunComparison comparison;
    std::string trace = {};  // a line about it
  };
  Result<Compared> compare(const std::string& directory);
  const std::vector<std::string>& assumptions() const { return assumptions_; }  // of durations

 private:
  PredictedRun(Plan plan, PlayedPlan played, Forecast forecast, std::vector<std::string> assumptions, std::string path,
               std::optional<WholeFile> file)
      : plan_(std::move(plan)),
        played_(std::move(played)),
        forecast_(std::move(forecast)),
        assumptions_(std::move(assumptions)),
        path_(std::move(path)),
        file_(std::move(file)) {}

  Plan plan_;
  PlayedPlan played_;
  Forecast forecast_;
  std::vector<std::string> assumptions_;
  std::string path_;  // of the trace
  std::optional<WholeFile> file_;
};

}  // namespace weft
