#include "problem/judge.h"

namespace weft {

Result<StrategyChoice> choice_of(const TrainingJob& job, const Judged& judged) {
  if (judged.parallelism) return choose_strategy(*judged.parallelism);
  return choose_strategy(job, judged.strategy, judged.tree);
}

Result<Judged> judge_strategy(const PlanProblem& problem, const CostModel& cost, StrategyChoice choice,
                              GraphCache* graphs) {
  // Beyond this a step is not recorded, and nobody says where its time goes: a record has some 100 bytes per task.
  constexpr std::int64_t kMostRecorded = 5'000'000;
  WEFT_TRY(const Plan plan, make_plan(problem.job, std::move(choice), graphs));
  WEFT_TRY(Forecast found, forecast(plan, cost, {.record = true, .most_recorded = kMostRecorded}));
  return Judged{plan.name, plan.parallelism, plan.strategy, std::move(found)};
}

}  // namespace weft
