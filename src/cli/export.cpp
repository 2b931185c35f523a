// weft export: a plan as the launch configuration of a trainer.
#include "export/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/units.h"
#include "base/whole_file.h"
#include "cli/commands.h"
#include "cli/plan_arguments.h"
#include "cli/progress.h"
#include "cost/analytic.h"
#include "forecast/forecast.h"
#include "report/chakra.h"
#include "report/plan_file.h"
#include "report/trace.h"

namespace weft {
namespace {

struct ExportArguments {
  PlanRequest request;
  std::string plan, to, launch, out;
};

// Targets that are no trainer's configuration: a job script around one, a timeline, and traces for simulators of networks.
constexpr std::string_view kSlurm = "slurm", kTrace = "trace", kChakra = "chakra";

Result<PlanRequest> request_of(const ExportArguments& arguments) {
  const PlanRequest& request = arguments.request;
  if (!arguments.plan.empty()) WEFT_TRY_OK(check_file_alone(request, arguments.plan));
  const std::pair<const char*, bool> needed[] = {{"--model", !request.model.empty()},
                                                 {"--cluster", !request.cluster.empty()},
                                                 {"--strategy", !request.strategy.empty()}};
  for (const auto& [option, given] : needed)
    if (arguments.plan.empty() && !given) return error("{} is required\nTry 'weft export --help'.", option);
  if (arguments.plan.empty()) return request;
  WEFT_TRY(const PlanFile file, read_plan_file(arguments.plan));
  return file.request();
}

Result<Answer> run_trace(const ExportArguments& arguments, const Plan& plan) {
  if (arguments.out.empty()) return error("--to trace: add --out FILE");
  Result<WholeFile> file = WholeFile::create(arguments.out);
  if (!file.ok()) return file.error().at("--out");
  WEFT_TRY(const PlayedPlan played,
           play_plan(plan, AnalyticCost(plan.stack(), plan.job->tuning), ForecastOptions{.record = true}));
  WEFT_TRY_OK(write_trace(*file, plan, played));
  if (const Status finished = file->finish(); !finished.ok()) return Answer{.unwritten = finished.error().at("--out")};
  return Answer{.text = fmt::format("written: {}\n", arguments.out)};
}

Result<Answer> run_chakra(const ExportArguments& arguments, const Plan& plan) {
  if (arguments.out.empty()) return error("--to chakra: add --out PREFIX: ranks have a file each, PREFIX.0.et");
  const AnalyticCost cost(plan.stack(), plan.job->tuning);
  WEFT_TRY(const PlayedPlan played, play_plan(plan, cost));
  WEFT_TRY(const ChakraTraces traces, ChakraTraces::of(plan, played, cost));
  Progress progress;
  const Result<ChakraCounts> counts = write_chakra(arguments.out, traces, [&](double share) {
    progress.now("writing traces", share);
    return true;
  });
  progress.done();
  if (!counts.ok()) return Answer{.unwritten = counts.error().at("--out")};
  return Answer{.text = fmt::format("written: {0}.0.et to {0}.{1}.et, {0}.groups.json: {2} nodes, {3} groups, {4}\n",
                                    arguments.out, traces.ranks() - 1, grouped(counts->nodes), grouped(counts->groups),
                                    human(Bytes{counts->bytes}))};
}

Result<Answer> run_export(const ExportArguments& arguments) {
  const bool slurm = arguments.to == kSlurm, trace = arguments.to == kTrace, chakra = arguments.to == kChakra;
  if (!arguments.launch.empty() && !slurm) return error("--launch {}: belongs to --to slurm", arguments.launch);
  const std::string trainer = !slurm ? arguments.to : arguments.launch.empty() ? "megatron" : arguments.launch;
  const auto target = trace || chakra ? Result<Target>(Target::Megatron) : target_named(trainer);
  if (!target.ok())
    return slurm ? target.error().at("--launch") : error("--to: {}; slurm, trace and chakra", target.error().message);
  WEFT_TRY(const PlanRequest request, request_of(arguments));
  WEFT_TRY(const Plan plan, make_plan(request));
  if (trace) return run_trace(arguments, plan);
  if (chakra) return run_chakra(arguments, plan);
  WEFT_TRY(std::string text, slurm ? slurm_script(*target, plan) : export_plan(*target, plan));
  if (arguments.out.empty()) return Answer{.text = std::move(text)};
  Answer answer;
  if (const Status written = write_whole(arguments.out, text); !written.ok()) {
    answer.unwritten = written.error().at("--out");
  } else {
    answer.text = fmt::format("written: {}\n", arguments.out);
  }
  return answer;
}

}  // namespace

void add_export(CLI::App& app, Chosen& chosen) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command = app.add_subcommand("export", "Write a plan as the launch configuration of a trainer.");
  command->footer(
      "\nA strategy that the trainer cannot express is refused (exit code 2), with the reason and the nearest one that "
      "it\n"
      "can; weft plan --for megatron finds only such plans. weft simulate --from megatron reads a launch script back.\n"
      "docs/exports.md says what every field means, and the version of each trainer.\n"
      "\nExamples:\n"
      "  weft export found/plan.json --to megatron --out train.sh\n"
      "  weft export --model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1 --to megatron\n");
  command->add_option("plan,--plan", arguments->plan, "a plan.json of weft plan --out, instead of what follows");
  add_plan_arguments(*command, arguments->request);
  for (const char* option : {"--model", "--cluster", "--strategy"}) command->get_option(option)->required(false);
  command->add_option("--to", arguments->to, fmt::format("{}; slurm, trace, chakra", fmt::join(kTargetNames, ", ")))
      ->required();
  command->add_option("--launch", arguments->launch, "the trainer that --to slurm starts (default: megatron)");
  command->add_option("--out", arguments->out,
                      "write it into this file (default: print it); with --to chakra the files' common beginning");
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(run_export(*arguments)); }; });
}

}  // namespace weft
