#include "search/judge.h"

#include "strategy/yaml.h"

namespace weft {
namespace {

Result<Judged> judge_plan(const PlanProblem& problem, const CostModel& cost, Plan plan, const JudgeOptions& options) {
  plan.stack = problem.stack;  // with constants of its own, perhaps
  WEFT_TRY(Forecast found,
           forecast(plan, cost, {.network = options.network, .record = true, .headroom = options.headroom}));
  return Judged{plan.request.strategy, plan.parallelism, to_yaml(plan.strategy), std::move(found)};
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
