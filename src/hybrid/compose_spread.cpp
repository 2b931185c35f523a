#include "hybrid/compose_spread.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

CompositionKind composition_kind(const PlanProblem& problem, const HybridPlan& plan) {
  return {.one_stack = problem.layers.simple,
          .zero = plan.zero < 2 ? 0 : plan.zero,
          .schedule = plan.pp == 1 ? 0 : 1 + static_cast<int>(plan.schedule),
          .experts = plan.ep > 1,
          .tied = problem.model().tied_embeddings && plan.pp > 1,
          .recompute = plan.recompute != PlanRecompute::None};
}

std::string print(const CompositionKind& kind) {
  return fmt::format("{}zero={} {}{}{}{}", kind.one_stack ? "" : "sections ",
                     kind.zero == 0   ? "0-1"
                     : kind.zero == 2 ? "2"
                                      : "3",
                     kind.schedule == 0 ? "no pipeline" : name_of(static_cast<PlanSchedule>(kind.schedule - 1)),
                     kind.experts ? " ep" : "", kind.tied ? " tied" : "", kind.recompute ? " recompute" : "");
}

CompositionSpread composition_spread(const CompositionKind& kind) {
  // Of each rule by itself; a plan has the largest of those that it combines.
  CompositionSpread spread{0.01, 0.03};
  const auto add = [&](bool applies, CompositionSpread rule) {
    if (!applies) return;
    spread.above = std::max(spread.above, rule.above);
    spread.below = std::max(spread.below, rule.below);
  };
  add(!kind.one_stack, {0.04, 0.10});
  add(!kind.one_stack && kind.schedule > 0, {0.10, 0.40});
  return spread;
}

}  // namespace weft
