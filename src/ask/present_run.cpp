#include "ask/present_run.h"

#include <fmt/format.h>

#include <tuple>

#include "base/read_file.h"
#include "cost/analytic.h"

namespace weft {
namespace {

// What a configuration says must not be said by an option too; what it cannot say must be.
Status check_words(const PlanRequest& request, const ImportedRun& run, const std::string& path) {
  const std::tuple<const char*, bool, bool> said[] = {{"--model", !request.model.empty(), !run.request.model.empty()},
                                                      {"--strategy", !request.strategy.empty(), true},
                                                      {"--global-batch", request.global_batch.has_value(), true},
                                                      {"--micro-batch", request.micro_batch.has_value(), true},
                                                      {"--seq", request.seq.has_value(), run.request.seq.has_value()},
                                                      {"--dtype", !request.dtype.empty(), true}};
  for (const auto& [option, given, in_file] : said)
    if (given && in_file) return error("{}: {} says it; leave one out", option, path);
  if (request.model.empty() && run.request.model.empty())
    return error("--model is required: {} does not say what is trained", path);
  return Ok{};
}

}  // namespace

Result<std::string> read_configuration(const std::string& path) {
  return read_file(path, {"a launch configuration", std::size_t{16} << 20});
}

Result<ImportedRun> read_launch(Target target, const std::string& path) {
  WEFT_TRY(const std::string text, read_configuration(path));
  return import_run(target, text, path);
}

Result<ImportedRun> on_cluster(ImportedRun run, const PlanRequest& request, const std::string& path) {
  WEFT_TRY_OK(check_words(request, run, path));
  if (run.request.model.empty()) run.request.model = request.model;
  if (!run.request.seq) run.request.seq = request.seq;
  run.request.cluster = request.cluster;
  if (request.device_count) run.request.device_count = request.device_count;
  run.request.freeze = request.freeze;
  run.request.headroom = request.headroom;
  return run;
}

Result<PresentRun> simulate_present(Target target, const std::string& path, ImportedRun run,
                                    const Calibration& calibration) {
  Result<Plan> plan = make_plan(run.request, calibration);
  if (!plan.ok()) return plan.error().at(path);
  run.request.global_batch = plan->batch.global_batch;
  WEFT_TRY(Forecast found, forecast(*plan, AnalyticCost(plan->stack(), plan->job->tuning)));
  return PresentRun{target, path, std::move(run), std::move(plan).value(), std::move(found)};
}

Status admit_only(Target target, const TrainingJob& job, SpaceOptions& space) {
  const auto subject = std::make_shared<const Expressible>(target, job);
  if (const auto why = subject->no_strategy()) return error("--for {}: {}", name_of(target), *why);
  space.allows = [subject](const Parallelism& strategy) { return !subject->why_not(strategy); };
  return Ok{};
}

bool is_better(const PresentRun& present, const Judged& best) {
  return !present.forecast.feasible || best.forecast.step < present.forecast.step;
}

Result<std::string> configuration_of_found(Target target, const PlanProblem& problem, const Judged& found,
                                           const std::vector<std::string>& kept) {
  WEFT_TRY(StrategyChoice choice, choice_of(*problem.job, found));
  WEFT_TRY(const Plan plan, make_plan(problem.job, std::move(choice)));
  return export_plan(target, plan, {.kept = kept});
}

}  // namespace weft
