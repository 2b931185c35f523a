// weft show strategy, weft show program: a plan before anything runs.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/plan_arguments.h"
#include "cost/analytic.h"
#include "cost/step_prices.h"
#include "report/program.h"
#include "report/strategy.h"
#include "report/symbolic.h"
#include "report/tree.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

struct StrategyArguments {
  PlanRequest request;
  std::string costs, tiers;
  bool json = false, yaml = false, tree = false;
};

Result<std::string> show_strategy(const StrategyArguments& arguments) {
  if (!arguments.costs.empty() && arguments.costs != "symbolic")
    return error("--costs '{}': write symbolic; times are weft simulate's", arguments.costs);
  if (arguments.costs.empty() && !arguments.tiers.empty())
    return error("--tiers {}: weighs volumes; add --costs symbolic", arguments.tiers);
  WEFT_TRY(const auto tiers, parse_tiers(arguments.tiers));
  WEFT_TRY(const Plan plan, make_plan(arguments.request));
  if (arguments.yaml) return to_yaml(plan.strategy);
  if (arguments.tree) return draw_tree(plan.strategy);
  const AnalyticCost cost(plan.stack());
  const StepPrices prices(plan.cluster(), cost, plan.stack().uneven_parts.value);
  const bool by_volume = !arguments.costs.empty();
  WEFT_TRY(const CompiledStrategy compiled, compile_plan(plan, by_volume ? nullptr : &prices));
  if (by_volume) {
    const SymbolicReport costs = symbolic_costs(plan, compiled);
    return arguments.json ? to_text(to_json(plan, compiled, costs, tiers)) : describe(plan, compiled, costs, tiers);
  }
  const StrategyReport found = report_strategy(plan, compiled);
  return arguments.json ? to_text(to_json(plan, compiled, found)) : describe(plan, compiled, found);
}

struct ProgramArguments {
  PlanRequest request;
  std::optional<std::int64_t> rank, stage;
  bool json = false;
};

Result<std::string> show_program(const ProgramArguments& arguments) {
  WEFT_TRY(const Plan plan, make_plan(arguments.request));
  const AnalyticCost cost(plan.stack());
  const StepPrices prices(plan.cluster(), cost, plan.stack().uneven_parts.value);
  WEFT_TRY(const CompiledStrategy compiled, compile_plan(plan, &prices));
  if (arguments.rank) return rank_text(plan, compiled, *arguments.rank);
  if (arguments.stage) return stage_text(plan, compiled, *arguments.stage);
  return arguments.json ? to_text(program_json(plan, compiled)) : describe_program(plan, compiled);
}

}  // namespace

void add_show_strategy(CLI::App& show, Chosen& chosen) {
  const auto arguments = std::make_shared<StrategyArguments>();
  CLI::App* command = show.add_subcommand(
      "strategy", "A plan as an expert would sketch it: ranks, groups and links, splits, collectives, memory.");
  command->footer(
      std::string(kStrategyWords) +
      "\nExamples:\n"
      "  weft show strategy --model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1\n"
      "  weft show strategy --model resnet50 --cluster dgx-a100:1 --strategy dp=8\n"
      "  weft show strategy --model mixtral-8x7b --cluster dgx-h100:4 --strategy ep=8,tp=2,pp=2,zero=1 --tree\n"
      "  weft show strategy --model gpt3-175b --cluster dgx-a100:16 --strategy tp=8,pp=16,ga=64 --yaml > mine.yaml\n"
      "  weft show strategy --model gpt3-175b --cluster dgx-a100:16 --strategy mine.yaml\n"
      "  weft show strategy --model gpt2-124m --cluster dgx-h100:1 --strategy tp=2,dp=4 --costs symbolic\n");
  add_plan_arguments(*command, arguments->request);
  CLI::Option* json = command->add_flag("--json", arguments->json, "one JSON object (docs/schema)");
  CLI::Option* yaml =
      command->add_flag("--yaml", arguments->yaml, "the strategy as a file that can be edited and read back");
  command->add_flag("--tree", arguments->tree, "the strategy tree only")->excludes(json)->excludes(yaml);
  yaml->excludes(json);
  CLI::Option* costs =
      command->add_option("--costs", arguments->costs, "symbolic: what is computed and sent, as expressions of shapes");
  costs->excludes(yaml);
  command->add_option("--tiers", arguments->tiers, "with --costs: what a byte counts over mesh axes, tp=1,dp=8");
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(show_strategy(*arguments)); }; });
}

void add_show_program(CLI::App& show, Chosen& chosen) {
  const auto arguments = std::make_shared<ProgramArguments>();
  CLI::App* command = show.add_subcommand(
      "program",
      "The compiled plan: rank classes and their instructions, bytes by collective and group, memory by kind.");
  command->footer(
      std::string(kStrategyWords) +
      "\nExamples:\n"
      "  weft show program --model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1\n"
      "  weft show program --model gpt2 --cluster dgx-h100:1 --strategy tp=2,dp=4 --rank 3     every instruction\n");
  add_plan_arguments(*command, arguments->request);
  CLI::Option* json = command->add_flag("--json", arguments->json, "one JSON object (docs/schema)");
  CLI::Option* rank =
      command->add_option("--rank", arguments->rank, "print every instruction of this rank, with its shapes");
  command->add_option("--stage", arguments->stage, "the same of the first rank of a pipeline stage")
      ->excludes(rank)
      ->excludes(json);
  rank->excludes(json);
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(show_program(*arguments)); }; });
}

}  // namespace weft
