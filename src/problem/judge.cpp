#include "problem/judge.h"

#include "cost/step_prices.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

// Beyond this a step is not recorded, and nobody says where its time goes: a record has some 100 bytes per task.
constexpr std::int64_t kMostRecorded = 5'000'000;

// Of one device of every pipeline rank.
std::int64_t tasks_of(const CompiledStrategy& compiled) {
  std::size_t instructions = 0;
  for (const StageProgram& stage : compiled.program.stages)
    instructions += stage.forward.size() + stage.backward.size();
  return static_cast<std::int64_t>(instructions) * compiled.schedule.micro_batches;
}

Result<Judged> judge_plan(const PlanProblem& problem, const CostModel& cost, Plan plan, const JudgeOptions& options) {
  plan.stack = problem.stack;  // with constants of its own, perhaps
  const StepPrices prices(plan.cluster, cost, plan.stack.uneven_parts.value);
  WEFT_TRY(CompiledStrategy compiled, compile_plan(plan, &prices));
  const ForecastOptions playing{
      .network = options.network, .record = tasks_of(compiled) <= kMostRecorded, .headroom = options.headroom};
  WEFT_TRY(PlayedProgram program, play_compiled(plan, plan.stack, compiled, cost, playing));
  const PlayedPlan played{std::move(compiled), std::move(program.priced), std::move(program.run), program.folded};
  return Judged{plan.request.strategy, plan.parallelism, to_yaml(plan.strategy), judge(plan, played, playing)};
}

}  // namespace

Result<Judged> judge_strategy(const PlanProblem& problem, const CostModel& cost, const std::string& strategy,
                              const JudgeOptions& options, SharedPlans* plans) {
  PlanRequest request = problem.request;
  request.strategy = strategy;
  WEFT_TRY(Plan plan, plans ? plans->make(request) : make_plan(request));
  return judge_plan(problem, cost, std::move(plan), options);
}

Result<Judged> judge_tree(const PlanProblem& problem, const CostModel& cost, const std::string& name,
                          const Strategy& tree, const JudgeOptions& options) {
  PlanRequest request = problem.request;
  request.strategy = name;
  request.tree = to_yaml(tree);
  WEFT_TRY(Plan plan, make_plan(request));
  return judge_plan(problem, cost, std::move(plan), options);
}

}  // namespace weft
