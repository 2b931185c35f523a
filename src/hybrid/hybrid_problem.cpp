#include "hybrid/hybrid_problem.h"

namespace weft {
namespace {

int in_common(const HybridPlan& a, const HybridPlan& b) {
  return (a.tp == b.tp) + (a.cp == b.cp) + (a.ep == b.ep) + (a.pp == b.pp) + (a.vpp == b.vpp) +
         (a.micro_batch == b.micro_batch) + (a.zero == b.zero) + (a.copies == b.copies) +
         (a.sequence_parallel == b.sequence_parallel) + (a.recompute == b.recompute) + (a.cp_mode == b.cp_mode) +
         (a.schedule == b.schedule) + (a.split == b.split);
}

constexpr int kDrawn = 64;

}  // namespace

HybridProblem::HybridProblem(const PlanProblem& problem, const CostModel& cost, const SpaceOptions& options,
                             int threads)
    : problem_(problem), composer_(problem, cost), space_(enumerate_space(problem, options)) {
  composer_.prepare(space_.plans, threads);
}

HybridPlan HybridProblem::neighbour(const HybridPlan& plan, Rng& rng) const {
  HybridPlan nearest = random(rng);
  for (int i = 1; i < kDrawn; ++i) {
    const HybridPlan other = random(rng);
    if (other == plan) continue;
    if (nearest == plan || in_common(other, plan) > in_common(nearest, plan)) nearest = other;
  }
  return nearest;
}

std::optional<double> HybridProblem::judge(const HybridPlan& plan) const {
  const std::optional<Composition> made = composer_.compose(plan);
  if (!made || !made->fits()) return std::nullopt;
  return made->step_s;
}

}  // namespace weft
