// Runs that a trainer's own configuration describes, and plans for one trainer: --from, --for, --against.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ask/present_run.h"

namespace CLI {
class App;
}

namespace weft {

struct FromArguments {
  std::vector<std::string> from;  // the trainer and the file; empty: not given
};
// Adds --from.
void add_from_argument(CLI::App& command, FromArguments& arguments);
// The run of --from on the cluster of the request. What the file says must not be said by options too.
Result<ImportedRun> imported_run(const FromArguments& arguments, const PlanRequest& request);

struct TrainerArguments {
  std::string trainer;  // --for; empty: any plan
  std::string against;  // --against: a file; empty: none
};
// Adds --for and --against.
void add_trainer_arguments(CLI::App& command, TrainerArguments& arguments);

// The trainer of --for, or of the file that --against names; none: neither is given.
Result<std::optional<Target>> trainer_of(const TrainerArguments& arguments);
Result<PresentRun> read_present_run(const TrainerArguments& arguments, Target target, const PlanRequest& request,
                                    const Calibration& calibration);

// The comparison of the present run with the best plan found, and the new configuration; for people and for programs.
std::string describe_change(const PresentRun& present, const PlanProblem& problem, const Judged* best);
void add_change(const PresentRun& present, const PlanProblem& problem, const Judged* best, nlohmann::json& into);

}  // namespace weft
