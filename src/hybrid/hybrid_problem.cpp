#include "hybrid/hybrid_problem.h"

#include "hybrid/neighbours.h"

namespace weft {

HybridProblem::HybridProblem(const PlanProblem& problem, const CostModel& cost, const SpaceOptions& options)
    : problem_(problem), composer_(problem, cost), space_(enumerate_space(problem, options)), options_(options) {}

HybridPlan HybridProblem::neighbour(const HybridPlan& plan, Rng& rng) const {
  std::vector<HybridPlan> near;
  for (const Parallelism& each : one_knob_changed(problem_, options_, parallelism_of(plan, problem_.layers)))
    if (const std::optional<HybridPlan> found = hybrid_plan_of(each, problem_.layers)) near.push_back(*found);
  return near.empty() ? random(rng) : near[rng.below(near.size())];
}

std::optional<double> HybridProblem::judge(const HybridPlan& plan) const {
  const std::lock_guard lock(mutex_);
  composer_.prepare({&plan, 1}, 1);
  const std::optional<Composition> made = composer_.compose(plan);
  if (!made || !made->fits()) return std::nullopt;
  return made->step_s;
}

}  // namespace weft
