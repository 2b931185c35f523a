#include "search/judge.h"

#include "strategy/yaml.h"

namespace weft {

Result<Judged> judge_strategy(const PlanProblem& problem, const CostModel& cost, const std::string& strategy,
                              const JudgeOptions& options, SharedPlans* plans) {
  PlanRequest request = problem.request;
  request.strategy = strategy;
  WEFT_TRY(Plan plan, plans ? plans->make(request) : make_plan(request));
  plan.stack = problem.stack;  // with constants of its own, perhaps
  WEFT_TRY(Forecast found,
           forecast(plan, cost, {.network = options.network, .record = true, .headroom = options.headroom}));
  return Judged{strategy, plan.parallelism, to_yaml(plan.strategy), std::move(found)};
}

}  // namespace weft
