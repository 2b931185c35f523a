#include "cli/imported.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/read_file.h"
#include "base/units.h"
#include "cost/analytic.h"

namespace weft {
namespace {

Result<std::string> read_configuration(const std::string& path) {
  return read_file(path, {"a launch configuration", std::size_t{16} << 20});
}

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

std::string memory_of(const Forecast& forecast) {
  const ClassForecast* full = forecast.fullest();
  if (full == nullptr) return "";
  return fmt::format(", {} of {} a device{}", human(full->device_total), human(full->capacity),
                     forecast.feasible ? "" : ": out of memory");
}

std::string figures(const Forecast& forecast) {
  return fmt::format("{} a step, MFU {:.1f} %{}", human(Seconds{forecast.step_s}), 100 * forecast.mfu,
                     memory_of(forecast));
}

bool is_better(const PresentRun& present, const Judged& best) {
  return !present.forecast.feasible || best.forecast.step < present.forecast.step;
}

Result<std::string> new_configuration(const PresentRun& present, const PlanProblem& problem, const Judged& best) {
  WEFT_TRY(StrategyChoice choice, choice_of(*problem.job, best));
  WEFT_TRY(const Plan plan, make_plan(problem.job, std::move(choice)));
  return export_plan(present.target, plan, {.kept = present.run.kept});
}

}  // namespace

void add_from_argument(CLI::App& command, FromArguments& arguments) {
  command
      .add_option("--from", arguments.from,
                  "a trainer and its configuration, megatron args.txt: model, strategy, batch and type are read there")
      ->expected(2);
}

Result<ImportedRun> imported_run(const FromArguments& arguments, const PlanRequest& request) {
  const auto target = target_named(arguments.from[0]);
  if (!target.ok()) return target.error().at("--from");
  const std::string& path = arguments.from[1];
  WEFT_TRY(const std::string text, read_configuration(path));
  WEFT_TRY(ImportedRun run, import_run(*target, text, path));
  WEFT_TRY(run, on_cluster(std::move(run), request, path));
  if (!request.stack.empty()) run.request.stack = request.stack;
  return run;
}

void add_trainer_arguments(CLI::App& command, TrainerArguments& arguments) {
  command.add_option("--for", arguments.trainer,
                     fmt::format("only plans that this trainer can express: {}", fmt::join(kTargetNames, ", ")));
  command.add_option(
      "--against", arguments.against,
      "a present run's launch configuration: what it takes, what would be better, and the configuration of that");
}

Result<std::optional<Target>> trainer_of(const TrainerArguments& arguments) {
  if (!arguments.trainer.empty()) {
    const auto named = target_named(arguments.trainer);
    if (!named.ok()) return named.error().at("--for");
    return std::optional(*named);
  }
  if (arguments.against.empty()) return std::optional<Target>();
  WEFT_TRY(const std::string text, read_configuration(arguments.against));
  return std::optional(trainer_of_configuration(text));
}

Result<PresentRun> read_present_run(const TrainerArguments& arguments, Target target, const PlanRequest& request,
                                    const Calibration& calibration) {
  const std::string& path = arguments.against;
  WEFT_TRY(const std::string text, read_configuration(path));
  WEFT_TRY(ImportedRun imported, import_run(target, text, path));
  WEFT_TRY(ImportedRun run, on_cluster(std::move(imported), request, path));
  Result<Plan> plan = make_plan(run.request, calibration);
  if (!plan.ok()) return plan.error().at(path);
  run.request.global_batch = plan->batch.global_batch;
  // --stack is of the plans that are looked for: what if other habits were switched on too.
  if (!request.stack.empty()) run.request.stack = request.stack;
  WEFT_TRY(Forecast found, forecast(*plan, AnalyticCost(plan->stack(), plan->job->tuning)));
  return PresentRun{target, path, std::move(run), std::move(plan).value(), std::move(found)};
}

Status admit_only(Target target, const TrainingJob& job, SpaceOptions& space) {
  const auto subject = std::make_shared<const Expressible>(target, job);
  if (const auto why = subject->no_strategy()) return error("--for {}: {}", name_of(target), *why);
  space.allows = [subject](const Parallelism& strategy) { return !subject->why_not(strategy); };
  return Ok{};
}

std::string describe_change(const PresentRun& present, const PlanProblem& problem, const Judged* best) {
  std::string text = fmt::format("\npresent run ({})\n  {}\n  {}\n", present.file,
                                 print(shorthand_of(*present.plan.parallelism)), figures(present.forecast));
  for (const std::string& note : present.run.notes) text += fmt::format("  {}\n", note);
  if (best == nullptr) return text;
  if (!is_better(present, *best)) return text + "\nNo plan that was found is faster: keep the present run.\n";
  if (present.forecast.feasible)
    text += fmt::format("\n{:.2f} times as fast: {}\n  {}\n", present.forecast.step_s / best->forecast.step_s,
                        best->strategy, figures(best->forecast));
  else
    text += fmt::format("\nfits: {}\n  {}\n", best->strategy, figures(best->forecast));
  const Result<std::string> script = new_configuration(present, problem, *best);
  return text +
         (script.ok() ? fmt::format("\n{}", *script) : fmt::format("\nno configuration: {}\n", script.error().message));
}

void add_change(const PresentRun& present, const PlanProblem& problem, const Judged* best, nlohmann::json& into) {
  nlohmann::json& json = into["present"];
  json = {{"file", present.file},
          {"trainer", std::string(name_of(present.target))},
          {"strategy", print(shorthand_of(*present.plan.parallelism))},
          {"step_time_s", present.forecast.step_s},
          {"mfu", present.forecast.mfu},
          {"feasible", present.forecast.feasible},
          {"notes", present.run.notes},
          {"configuration", nullptr}};
  if (best == nullptr || !is_better(present, *best)) return;
  if (const Result<std::string> script = new_configuration(present, problem, *best); script.ok())
    json["configuration"] = *script;
}

}  // namespace weft
