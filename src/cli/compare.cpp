// weft compare: two plans side by side.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/cost_arguments.h"
#include "cli/plan_arguments.h"
#include "cli/progress.h"
#include "report/comparison.h"
#include "report/plan_file.h"

namespace weft {
namespace {

struct ComparisonArguments {
  PlanRequest request;
  std::string a, b;
  CostArguments cost;
  bool json = false;
};

// Plan files end in .json; a strategy's file in .yaml, and a shorthand has an `=`.
bool is_plan_file(const std::string& words) { return words.ends_with(".json") && words.find('=') == std::string::npos; }

// The request for `words`; a strategy belongs to the given problem, or to that of the other's plan file.
Result<PlanRequest> request_of(const ComparisonArguments& arguments, const std::string& words,
                               const std::string& other) {
  if (is_plan_file(words)) {
    WEFT_TRY(const PlanFile file, read_plan_file(words));
    return file.request();
  }
  PlanRequest request = arguments.request;
  if (request.model.empty() && is_plan_file(other)) {
    WEFT_TRY_OK(check_file_alone(request, other));
    WEFT_TRY(const PlanFile file, read_plan_file(other));
    request = file.request();
    request.tree.clear();
  }
  if (request.model.empty() || request.cluster.empty())
    return error("{}: a strategy needs its problem: add --model and --cluster, or compare it with a plan.json", words);
  request.strategy = words;
  return request;
}

struct PlayedSide {
  Plan plan;
  PlayedPlan played;
  Forecast forecast;
};

Result<PlayedSide> play(const ComparisonArguments& arguments, const PlanRequest& request) {
  WEFT_TRY(const Calibration calibration, calibration_of(arguments.cost));
  WEFT_TRY(Plan plan, make_plan(request, calibration));
  WEFT_TRY(const ChosenCost cost, choose_cost(arguments.cost, *plan.job));
  const ForecastOptions all{.record = true};
  WEFT_TRY(PlayedPlan played, play_plan(plan, *cost.model, all));
  Forecast found = judge(plan, played, all);
  return PlayedSide{std::move(plan), std::move(played), std::move(found)};
}

Result<Answer> run_comparison(const ComparisonArguments& arguments) {
  WEFT_TRY_OK(check(arguments.cost));
  if (arguments.cost.model == "symbolic") return error("--cost symbolic: its times are not seconds to compare");
  if (is_plan_file(arguments.a) && is_plan_file(arguments.b))
    WEFT_TRY_OK(check_file_alone(arguments.request, arguments.a));
  WEFT_TRY(const PlanRequest of_a, request_of(arguments, arguments.a, arguments.b));
  WEFT_TRY(const PlanRequest of_b, request_of(arguments, arguments.b, arguments.a));
  Progress progress;
  const auto side = [&](const char* name, const std::string& words, const PlanRequest& request) -> Result<PlayedSide> {
    progress.now(fmt::format("simulating {}", name));
    Result<PlayedSide> made = play(arguments, request);
    if (!made.ok()) return made.error().at(words);
    return made;
  };
  WEFT_TRY(const PlayedSide a, side("A", arguments.a, of_a));
  WEFT_TRY(const PlayedSide b, side("B", arguments.b, of_b));
  progress.done();
  const ComparedPlan left{arguments.a, a.plan, a.played, a.forecast}, right{arguments.b, b.plan, b.played, b.forecast};
  Answer answer{.feasible = a.forecast.feasible && b.forecast.feasible};
  if (!arguments.json) {
    answer.text = describe(left, right);
    return answer;
  }
  nlohmann::json json = to_json(left, right);
  for (const char* each : {"a", "b"}) json[each]["network"] = "fair", json[each]["cost"] = arguments.cost.model;
  answer.text = to_text(json);
  return answer;
}

}  // namespace

void add_compare(CLI::App& app, Chosen& chosen) {
  const auto arguments = std::make_shared<ComparisonArguments>();
  CLI::App* command =
      app.add_subcommand("compare", "Two plans side by side: what differs, and where their time and memory go.");
  command->footer(
      "\nA and B are each a plan.json of weft plan --out, a strategy in one line, or a strategy-tree .yaml file.\n"
      "A strategy belongs to --model and --cluster, or to the problem of the plan.json it is compared with.\n"
      "The exit code is 1 where one of them does not fit.\n"
      "\nExamples:\n"
      "  weft compare found/plan.json other/plan.json\n"
      "  weft compare found/plan.json tp=8,pp=2,zero=1\n"
      "  weft compare --model llama3-8b --cluster dgx-h100:2 --global-batch 128 tp=2,dp=8,zero=1 tp=8,dp=2,zero=1\n");
  command->add_option("A", arguments->a, "a plan.json, or a strategy")->required();
  command->add_option("B", arguments->b, "what it is compared with")->required();
  PlanRequest& request = arguments->request;
  command->add_option("--model", request.model, "of strategies: zoo name, config.json or .onnx file");
  command->add_option("--cluster", request.cluster, "of strategies: preset:nodes, several joined by +, or a file");
  add_device_count(*command, request);
  command->add_option("--global-batch", request.global_batch, "samples per step");
  command->add_option("--micro-batch", request.micro_batch, "samples per micro-batch and replica");
  add_job_options(*command, request);
  add_cost_arguments(*command, arguments->cost);
  command->add_flag("--json", arguments->json, "one JSON object (docs/schema)");
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(run_comparison(*arguments)); }; });
}

}  // namespace weft
