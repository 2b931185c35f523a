#include "hybrid/baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/units.h"

namespace weft {
namespace {

int no_rank(const HybridPlan&) { return 0; }

// Data parallelism only, without options that few frameworks have.
bool replicas_only(const HybridPlan& plan) {
  return plan.tp == 1 && plan.cp == 1 && plan.ep == 1 && plan.pp == 1 && plan.recompute <= PlanRecompute::Op;
}

// As Megatron-LM trains by default: 1F1B, interleaved or not, equal stages, sequence parallelism beside tensor
// parallelism, and a sharded optimizer.
bool as_megatron(const HybridPlan& plan) {
  return plan.schedule <= PlanSchedule::Interleaved && plan.split <= StageSplit::LightEnds &&
         plan.sequence_parallel == (plan.tp > 1) && plan.zero == (plan.dp * plan.cp > 1 ? 1 : 0);
}

// Tensor parallelism fills the node; across nodes the shortest pipeline that fits, interleaved as is best (Narayanan et
// al. 2021, takeaways 1 and 2, section 2.2); whole layers are recomputed only if nothing else fits. Expert parallelism
// replaces tensor parallelism in the node (Megatron-Core's advice for mixtures of experts).
BaselineRule rule_of_thumb(const PlanProblem& problem, std::span<const HybridPlan> plans) {
  const auto usual = [](const HybridPlan& plan) {
    return as_megatron(plan) && plan.cp == 1 && plan.split == StageSplit::Even &&
           (plan.recompute == PlanRecompute::Selective || plan.recompute == PlanRecompute::Full);
  };
  std::int32_t tp = 1, ep = 1;
  for (HybridPlan plan : plans) {
    plan.recompute = PlanRecompute::Full;
    if (!usual(plan)) continue;
    if (problem.experts == 1 && plan.tp <= problem.per_node) tp = std::max(tp, plan.tp);
    if (plan.tp == 1 && plan.ep <= problem.per_node) ep = std::max(ep, plan.ep);
  }
  return {"Megatron 3D rule of thumb", "tensor parallelism fills the node, the shortest pipeline that fits the rest",
          [=, splits = problem.splits_tensors](const HybridPlan& plan) {
            return splits && usual(plan) && plan.tp == tp && plan.ep == ep;
          },
          [](const HybridPlan& plan) {
            constexpr int kWholeLayers = 1 << 20;  // after all pipelines
            return plan.pp + (plan.recompute == PlanRecompute::Full ? kWholeLayers : 0);
          }};
}

// Recomputes as little as fits, of what Megatron-LM has a word for.
BaselineRule published(const PublishedDegrees& degrees) {
  return {"published recipe", fmt::format("degrees of {}", degrees.source),
          [degrees](const HybridPlan& plan) {
            return as_megatron(plan) && plan.micro_batch == 1 && plan.recompute != PlanRecompute::Op &&
                   std::tuple(plan.tp, plan.cp, plan.pp, plan.vpp, plan.ep) ==
                       std::tuple(degrees.tp, degrees.cp, degrees.pp, degrees.vpp, degrees.ep);
          },
          [](const HybridPlan& plan) { return static_cast<int>(plan.recompute); }};
}

}  // namespace

std::vector<BaselineRule> baseline_rules(const PlanProblem& problem, std::span<const HybridPlan> plans) {
  std::vector<BaselineRule> rules = {
      {"data parallel", "every device has the whole model",
       [](const HybridPlan& plan) { return replicas_only(plan) && plan.zero == 0; }, no_rank},
      {"FSDP", "weights, gradients and optimizer state spread over all devices (zero=3)",
       [](const HybridPlan& plan) { return replicas_only(plan) && plan.zero == 3 && plan.copies == 1; }, no_rank}};
  if (problem.devices > problem.per_node)
    rules.push_back({"HSDP", "weights, gradients and optimizer state spread over the devices of a node, a copy on each",
                     [per_node = problem.per_node](const HybridPlan& plan) {
                       return replicas_only(plan) && plan.zero == 3 && plan.copies > 1 &&
                              plan.dp / plan.copies == per_node;
                     },
                     no_rank});
  if (problem.global_batch % problem.devices != 0)
    for (BaselineRule& rule : rules)
      rule.why_none =
          fmt::format("{} devices do not divide {} samples", grouped(problem.devices), grouped(problem.global_batch));
  rules.push_back(rule_of_thumb(problem, plans));
  for (const PublishedDegrees& degrees : published_degrees())
    if (degrees.model == problem.model().name && problem.devices % (degrees.tp * degrees.cp * degrees.pp) == 0) {
      rules.push_back(published(degrees));
      break;
    }
  return rules;
}

}  // namespace weft
