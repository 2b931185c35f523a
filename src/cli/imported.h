// Runs that a trainer's own configuration describes, and plans for one trainer: --from, --for, --against.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost/calibration.h"
#include "export/export.h"
#include "forecast/forecast.h"
#include "hybrid/enumerate.h"
#include "problem/problem.h"

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

// A present run, read from its configuration and simulated, and what it is compared with.
struct PresentRun {
  Target target{};
  std::string file;
  ImportedRun run;  // its global batch is settled
  Plan plan;
  Forecast forecast;
};
// The trainer of --for, or of the file that --against names; none: neither is given.
Result<std::optional<Target>> trainer_of(const TrainerArguments& arguments);
Result<PresentRun> read_present_run(const TrainerArguments& arguments, Target target, const PlanRequest& request,
                                    const Calibration& calibration);
// Makes the search consider only what the trainer can be told. An error: nothing of this job.
Status admit_only(Target target, const TrainingJob& job, SpaceOptions& space);

// The comparison of the present run with the best plan found, and the new configuration; for people and for programs.
std::string describe_change(const PresentRun& present, const PlanProblem& problem, const Judged* best);
void add_change(const PresentRun& present, const PlanProblem& problem, const Judged* best, nlohmann::json& into);

}  // namespace weft
