// A present run, from its trainer's configuration to its prediction, and searches limited to what a trainer can be told:
// what `weft simulate --from`, `weft plan --for` and `--against`, and `weft.read_launch` share.
//
//   read_launch(Target::Megatron, "train.sh")        model, strategy, batch, type and stack of the file
//   on_cluster(run, request, path)                   … completed by what it cannot say
//   simulate_present(target, path, run, calibration) the run, predicted
//   admit_only(target, job, space)                   the space of a search, less what the trainer cannot be told
//   configuration_of_found(target, problem, plan)    the configuration of a plan that was found
//
// Errors name file and line, or the option at fault. Not here: what a file means (src/export), options (src/cli).
#pragma once

#include <optional>
#include <string>

#include "cost/calibration.h"
#include "export/export.h"
#include "forecast/forecast.h"
#include "hybrid/enumerate.h"
#include "problem/problem.h"

namespace weft {

// The text of a launch configuration.
Result<std::string> read_configuration(const std::string& path);
Result<ImportedRun> read_launch(Target target, const std::string& path);
// The run on the cluster of the request. What the file says must not be said by the request too.
Result<ImportedRun> on_cluster(ImportedRun run, const PlanRequest& request, const std::string& path);

// A present run, read from its configuration and simulated.
struct PresentRun {
  Target target{};
  std::string file;
  ImportedRun run;  // its global batch is settled
  Plan plan;
  Forecast forecast;
};
Result<PresentRun> simulate_present(Target target, const std::string& path, ImportedRun run,
                                    const Calibration& calibration);

// Makes the search consider only what the trainer can be told. An error: nothing of this job.
Status admit_only(Target target, const TrainingJob& job, SpaceOptions& space);
bool is_better(const PresentRun& present, const Judged& best);
// The configuration of a plan that was found; `kept`: the user's own arguments.
Result<std::string> configuration_of_found(Target target, const PlanProblem& problem, const Judged& found,
                                           const std::vector<std::string>& kept = {});

}  // namespace weft
