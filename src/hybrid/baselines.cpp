#include "hybrid/baselines.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

template <class Keep>
std::vector<std::size_t> those(std::span<const HybridPlan> plans, const Keep& keep) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < plans.size(); ++i)
    if (keep(plans[i])) found.push_back(i);
  return found;
}

// Data parallelism only, without options that few frameworks have.
bool replicas_only(const HybridPlan& plan) {
  return plan.tp == 1 && plan.cp == 1 && plan.ep == 1 && plan.pp == 1 && plan.recompute <= PlanRecompute::Op;
}

// Tensor parallelism fills the node; across nodes the shortest pipeline that fits (Narayanan et al. 2021, takeaways 1
// and 2); optimizer state is sharded; one sample per micro-batch; whole layers are recomputed only if nothing else
// fits. Expert parallelism replaces tensor parallelism in the node (Megatron-Core's advice for mixtures of experts).
std::vector<std::size_t> rule_of_thumb(std::span<const HybridPlan> plans, const PlanProblem& problem) {
  const auto usual = [](const HybridPlan& plan) {
    return plan.cp == 1 && plan.vpp == 1 && plan.schedule == PlanSchedule::OneForwardOneBackward &&
           plan.split == StageSplit::Even && plan.micro_batch == 1 && plan.sequence_parallel == (plan.tp > 1) &&
           (plan.recompute == PlanRecompute::Selective || plan.recompute == PlanRecompute::Full) &&
           plan.zero == (plan.dp > 1 ? 1 : 0);
  };
  if (!problem.splits_tensors) return {};
  std::int32_t tp = 1, ep = 1;
  for (const HybridPlan& plan : plans) {
    if (!usual(plan)) continue;
    if (problem.experts == 1 && plan.tp <= problem.per_node) tp = std::max(tp, plan.tp);
    if (plan.tp == 1 && plan.ep <= problem.per_node) ep = std::max(ep, plan.ep);
  }
  std::vector<std::size_t> found =
      those(plans, [&](const HybridPlan& plan) { return usual(plan) && plan.tp == tp && plan.ep == ep; });
  std::stable_sort(found.begin(), found.end(), [&](std::size_t a, std::size_t b) {
    const auto key = [&](const HybridPlan& plan) { return std::pair(plan.recompute == PlanRecompute::Full, plan.pp); };
    return key(plans[a]) < key(plans[b]);
  });
  return found;
}

}  // namespace

std::vector<BaselineRule> baseline_rules(const PlanProblem& problem) {
  std::vector<BaselineRule> rules = {
      {"data parallel", "every device has the whole model",
       [](std::span<const HybridPlan> plans) {
         return those(plans, [](const HybridPlan& plan) { return replicas_only(plan) && plan.zero == 0; });
       },
       true},
      {"FSDP", "weights, gradients and optimizer state spread over all devices (zero=3)",
       [](std::span<const HybridPlan> plans) {
         return those(plans,
                      [](const HybridPlan& plan) { return replicas_only(plan) && plan.zero == 3 && plan.copies == 1; });
       },
       true},
      {"Megatron 3D rule of thumb", "tensor parallelism fills the node, the shortest pipeline that fits the rest",
       [&problem](std::span<const HybridPlan> plans) { return rule_of_thumb(plans, problem); }, false}};
  if (problem.devices > problem.per_node)
    rules.insert(rules.begin() + 2,
                 {"HSDP", "weights, gradients and optimizer state spread over the devices of a node, a copy on each",
                  [&problem](std::span<const HybridPlan> plans) {
                    return those(plans, [&](const HybridPlan& plan) {
                      return replicas_only(plan) && plan.zero == 3 && plan.copies > 1 &&
                             plan.dp / plan.copies == problem.per_node;
                    });
                  },
                  true});
  return rules;
}

}  // namespace weft
