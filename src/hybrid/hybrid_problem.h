// The hybrid space as a SearchProblem (problem/search_problem.h), whose judge is composition.
#pragma once

#include <mutex>

#include "hybrid/compose.h"
#include "hybrid/hybrid_space.h"
#include "problem/search_problem.h"

namespace weft {

class HybridProblem {
 public:
  using Candidate = HybridPlan;

  // Shapes are probed when the first plan of each is judged. Problem and cost are kept by reference.
  HybridProblem(const PlanProblem& problem, const CostModel& cost, const SpaceOptions& options = {});

  HybridPlan random(Rng& rng) const { return space_.plans[rng.below(space_.plans.size())]; }
  // One knob changed (neighbours.h).
  HybridPlan neighbour(const HybridPlan& plan, Rng& rng) const;
  std::optional<double> judge(const HybridPlan& plan) const;
  std::string name(const HybridPlan& plan) const { return print(shorthand_of(parallelism_of(plan, problem_.layers))); }

  const std::vector<HybridPlan>& plans() const { return space_.plans; }

 private:
  const PlanProblem& problem_;
  mutable std::mutex mutex_;
  mutable Composer composer_;  // probes are added under the lock
  HybridSpace space_;
  const SpaceOptions options_;
};
static_assert(SearchProblem<HybridProblem>);

}  // namespace weft
