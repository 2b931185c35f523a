#include "cli/imported.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace weft {
namespace {

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

Result<std::string> new_configuration(const PresentRun& present, const PlanProblem& problem, const Judged& best) {
  return configuration_of_found(present.target, problem, best, present.run.kept);
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
  WEFT_TRY(ImportedRun run, read_launch(*target, path));
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
  WEFT_TRY(ImportedRun imported, read_launch(target, path));
  WEFT_TRY(ImportedRun run, on_cluster(std::move(imported), request, path));
  WEFT_TRY(PresentRun present, simulate_present(target, path, std::move(run), calibration));
  // --stack is of the plans that are looked for: what if other habits were switched on too.
  if (!request.stack.empty()) present.run.request.stack = request.stack;
  return present;
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
