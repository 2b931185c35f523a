// The hybrid space as a SearchProblem, judged by composition.
#pragma once

#include "hybrid/compose.h"
#include "hybrid/hybrid_space.h"
#include "problem/search_space.h"

namespace weft {

class HybridProblem {
 public:
  using Candidate = HybridPlan;

  // Probes every shape of the space. Problem and cost are kept by reference.
  HybridProblem(const PlanProblem& problem, const CostModel& cost, const SpaceOptions& options = {}, int threads = 0);

  HybridPlan random(Rng& rng) const { return space_.plans[rng.below(space_.plans.size())]; }
  // Of some plans drawn at random, the one that has most in common.
  HybridPlan neighbour(const HybridPlan& plan, Rng& rng) const;
  std::optional<double> judge(const HybridPlan& plan) const;
  std::string name(const HybridPlan& plan) const { return print(shorthand_of(parallelism_of(plan, problem_.layers))); }

  const std::vector<HybridPlan>& plans() const { return space_.plans; }

 private:
  const PlanProblem& problem_;
  Composer composer_;
  HybridSpace space_;
};
static_assert(SearchProblem<HybridProblem>);

}  // namespace weft
