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
  CompositionSpread spread{.above = 0.01, .below = 0.025};
  const auto add = [&](bool applies, const CompositionSpread& rule) {
    if (!applies) return;
    spread.above = std::max(spread.above, rule.above);
    spread.below = std::max(spread.below, rule.below);
    spread.bound = std::max(spread.bound, rule.bound);
  };
  const auto schedule = [&](PlanSchedule each) { return kind.schedule == 1 + static_cast<int>(each); };
  const bool split = kind.schedule > 0 && splits_backward(static_cast<PlanSchedule>(kind.schedule - 1));
  add(kind.zero == 2, {0.045, 0.085, 0});  // above: a vision transformer of 22 B parameters on 1,024 devices
  add(kind.zero == 3, {0.045, 0.065, 0});
  add(kind.experts, {0.02, 0.04, 0});
  add(kind.schedule > 0, {0.01, 0.05, 0});
  add(kind.tied, {0.015, 0.035, 0});
  add(schedule(PlanSchedule::Interleaved), {0.05, 0.32, 0});  // the most where chunks are of one small layer
  add(schedule(PlanSchedule::GPipe), {0.015, 0.04, 0});
  // What a fused backward hides beside gradients of weights, a split one leaves in the open.
  add(schedule(PlanSchedule::ZeroBubbleH1), {0.04, 0.11, 0});
  add(schedule(PlanSchedule::ZeroBubbleH2), {0.04, 0.185, 0});
  add(schedule(PlanSchedule::ZeroBubbleV), {0.05, 0.06, 0});
  // Pairs of passes hide each other's communication.
  add(schedule(PlanSchedule::DualPipeV), {0.055, 0.06, 0});
  add(split && kind.recompute, {0.075, 0.03, 0.05});
  // The less a network repeats itself, the more what its sections wait for depends on their neighbours, the host
  // included, which is ahead in some of them and late in others.
  add(!kind.one_stack, {0.055, 0.125, 0.01});
  add(!kind.one_stack && kind.zero == 2, {0.055, 0.16, 0.01});
  add(!kind.one_stack && kind.zero == 3, {0.09, 0.16, 0});
  add(!kind.one_stack && kind.schedule > 0, {0.095, 0.43, 0});
  return spread;
}

}  // namespace weft
