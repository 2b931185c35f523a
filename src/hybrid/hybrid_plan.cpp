#include "hybrid/hybrid_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "strategy/schedules.h"

namespace weft {

std::string_view name_of(PlanSchedule schedule) {
  constexpr std::string_view names[kPlanSchedules] = {"1f1b",  "interleaved", "zb-h1",     "zb-v",
                                                      "gpipe", "zb-h2",       "dualpipe-v"};
  return names[static_cast<std::size_t>(schedule)];
}

std::vector<std::int64_t> stage_layers(std::int64_t layers, std::int64_t stages, StageSplit split) {
  const std::int64_t ends = split == StageSplit::LightEnds ? 2 : 0;
  const std::int64_t each = (layers + ends) / stages, rest = (layers + ends) % stages;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), each);
  // The remainder goes to the middle stages, which have neither embedding nor head.
  const std::int64_t first = (stages - rest + 1) / 2;
  for (std::int64_t i = 0; i < rest; ++i) ++counts[static_cast<std::size_t>(first + i)];
  if (split == StageSplit::LightEnds) --counts.front(), --counts.back();
  // Only embedding and head make a stage of their own.
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] < (ends > 0 && stages > 1 && (i == 0 || i + 1 == counts.size()) ? 0 : 1)) return {};
  return counts;
}

std::vector<std::int64_t> stage_layers(const LayerPattern& layers, std::int64_t stages, StageSplit split) {
  if (split >= StageSplit::First) {
    const auto& counts =
        layers.other_stages[static_cast<std::size_t>(split) - static_cast<std::size_t>(StageSplit::First)];
    return static_cast<std::int64_t>(counts.size()) == stages ? counts : std::vector<std::int64_t>{};
  }
  if (split != StageSplit::Balanced) return stage_layers(layers.count(), stages, split);
  return stages < static_cast<std::int64_t>(layers.balanced.size()) ? layers.balanced[static_cast<std::size_t>(stages)]
                                                                    : std::vector<std::int64_t>{};
}

Parallelism parallelism_of(const HybridPlan& plan, const LayerPattern& layers) {
  Parallelism made;
  made.tp = plan.tp;
  made.cp = plan.cp;
  made.ep = plan.ep;
  made.etp = plan.tp;
  made.pp = plan.pp;
  made.dp = plan.dp;
  made.fsdp = plan.dp / plan.copies;
  made.vpp = plan.vpp;
  made.zero = plan.zero;
  made.sequence_parallel = plan.sequence_parallel;
  made.cp_mode = plan.cp_mode;
  const RecomputeSet& set = layers.recompute.sets[static_cast<std::size_t>(plan.recompute)];
  made.recompute = set.base;
  made.full = in_all_layers(set.full);
  if (plan.offload) made.offload = {{Stored::Optimizer, {}}};
  made.micro_batch = made.last_micro_batch = plan.micro_batch;
  made.micro_batches = plan.micro_batches;
  made.schedule = name_of(plan.schedule);
  const std::int64_t stages = std::int64_t{plan.pp} * plan.vpp;
  if (stages > 1 && (plan.split != StageSplit::Even || layers.count() % stages != 0))
    made.stages = stage_layers(layers, stages, plan.split);
  return made;
}

std::optional<HybridPlan> hybrid_plan_of(const Parallelism& parallelism, const LayerPattern& layers) {
  if (!parallelism.shares.empty()) return std::nullopt;
  HybridPlan plan;
  plan.tp = static_cast<std::int32_t>(parallelism.tp);
  plan.cp = static_cast<std::int32_t>(parallelism.cp);
  plan.ep = static_cast<std::int32_t>(parallelism.ep);
  plan.pp = static_cast<std::int32_t>(parallelism.pp);
  plan.dp = static_cast<std::int32_t>(parallelism.dp);
  plan.vpp = static_cast<std::int32_t>(parallelism.vpp);
  plan.micro_batch = static_cast<std::int32_t>(parallelism.micro_batch);
  plan.micro_batches = static_cast<std::int32_t>(parallelism.micro_batches);
  plan.zero = static_cast<std::int8_t>(parallelism.zero);
  plan.copies = static_cast<std::int32_t>(parallelism.dp / parallelism.fsdp);
  plan.sequence_parallel = parallelism.sequence_parallel;
  for (std::size_t i = 0; i < layers.recompute.sets.size(); ++i)
    if (layers.recompute.sets[i].base == parallelism.recompute &&
        in_all_layers(layers.recompute.sets[i].full) == parallelism.full)
      plan.recompute = static_cast<PlanRecompute>(i);
  if (plan.cp > 1) plan.cp_mode = parallelism.cp_mode;
  plan.offload = !parallelism.offload.empty();
  for (int schedule = 0; schedule < kPlanSchedules; ++schedule)
    if (name_of(static_cast<PlanSchedule>(schedule)) == parallelism.schedule)
      plan.schedule = static_cast<PlanSchedule>(schedule);
  const auto with = [&](StageSplit split) {
    plan.split = split;
    return parallelism_of(plan, layers) == parallelism;
  };
  for (const StageSplit split : kStageSplits)
    if (with(split)) return plan;
  const auto& others = layers.other_stages;
  const auto known = std::find(others.begin(), others.end(), parallelism.stages);
  const auto index = static_cast<std::size_t>(StageSplit::First) + static_cast<std::size_t>(known - others.begin());
  if (known != others.end() && with(static_cast<StageSplit>(index))) return plan;
  return std::nullopt;
}

}  // namespace weft
