#include "problem/judge.h"

namespace weft {

Result<StrategyChoice> choice_of(const TrainingJob& job, const Judged& judged) {
  if (judged.parallelism) return choose_strategy(*judged.parallelism);
  return choose_strategy(job, judged.strategy, judged.tree);
}

Result<Judged> judge_strategy(const PlanProblem& problem, const CostModel& cost, StrategyChoice choice,
                              GraphCache* graphs, Detail detail) {
  // Most tasks of a step that is recorded, at some 100 bytes per task; longer steps have no breakdown of their time.
  constexpr std::int64_t kMostRecorded = 5'000'000;
  WEFT_TRY(const Plan plan, make_plan(problem.job, std::move(choice), graphs));
  const bool record = detail == Detail::WhereTimeGoes;
  WEFT_TRY(Forecast found,
           forecast(plan, cost, {.record = record, .most_recorded = kMostRecorded, .critical_path = false}));
  return Judged{plan.name, plan.parallelism, plan.strategy, std::move(found)};
}

}  // namespace weft
