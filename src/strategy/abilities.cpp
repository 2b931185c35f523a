#include "strategy/abilities.h"

#include <algorithm>
#include <array>
#include <functional>

#include "strategy/schedules.h"
#include "strategy/shorthand.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, kAbilities> kAbilityNames = {"tp",
                                                                    "sp",
                                                                    "cp",
                                                                    "a2a",
                                                                    "ring",
                                                                    "ep",
                                                                    "etp",
                                                                    "pp",
                                                                    "vpp",
                                                                    "gpipe",
                                                                    "zb",
                                                                    "zb-v",
                                                                    "uneven",
                                                                    "zero1",
                                                                    "zero2",
                                                                    "zero3",
                                                                    "hsdp",
                                                                    "pipelined-zero",
                                                                    "selective",
                                                                    "full",
                                                                    "op",
                                                                    "modules",
                                                                    "recompute-layers",
                                                                    "offload",
                                                                    "uneven-samples",
                                                                    "every-operator"};

}  // namespace

std::string_view name_of(Ability ability) { return kAbilityNames[static_cast<std::size_t>(ability)]; }

std::optional<Ability> ability_named(std::string_view name) {
  for (int i = 0; i < kAbilities; ++i)
    if (kAbilityNames[static_cast<std::size_t>(i)] == name) return static_cast<Ability>(i);
  return std::nullopt;
}

std::string print(Abilities abilities) {
  if (abilities == Abilities::all()) return "all";
  std::string text;
  for (int i = 0; i < kAbilities; ++i)
    if (const auto each = static_cast<Ability>(i); abilities.has(each))
      text += (text.empty() ? "" : " ") + std::string(name_of(each));
  return text.empty() ? "dp" : text;
}

Abilities needed_by(const Parallelism& plan) {
  Abilities needed;
  const auto need = [&](bool condition, Ability ability) {
    if (condition) needed.add(ability);
  };
  need(plan.tp > 1, Ability::Tensor);
  need(plan.tp > 1 && plan.sequence_parallel, Ability::Sequence);
  need(plan.cp > 1 && plan.cp_mode == ContextMode::Gather, Ability::Context);
  need(plan.cp > 1 && plan.cp_mode == ContextMode::AllToAll, Ability::AllToAll);
  need(plan.cp > 1 && plan.cp_mode == ContextMode::Ring, Ability::Ring);
  need(plan.ep > 1, Ability::Expert);
  need(plan.etp != plan.tp && plan.ep > 1, Ability::ExpertTensor);
  need(plan.pp > 1, Ability::Pipeline);
  if (plan.pp > 1 && plan.schedule != "1f1b") {
    const PipelineSchedule* schedule = find_schedule(plan.schedule);
    const bool chunks = schedule && schedule->chunks > 0;
    needed.add(plan.schedule == "interleaved" ? Ability::Interleaved
               : plan.schedule == "gpipe"     ? Ability::GPipe
               : chunks                       ? Ability::ZeroBubbleV
                                              : Ability::ZeroBubble);
  }
  const bool even =
      std::adjacent_find(plan.stages.begin(), plan.stages.end(), std::not_equal_to<>()) == plan.stages.end();
  need(!even, Ability::Uneven);
  need(plan.zero == 1, Ability::Zero1);
  need(plan.zero == 2, Ability::Zero2);
  need(plan.zero == 3, Ability::Zero3);
  need(plan.fsdp < plan.dp, Ability::Hybrid);
  need(plan.zero >= 2 && plan.pp > 1, Ability::PipelinedZero);
  need(plan.recompute == Recompute::Selective, Ability::Selective);
  need(plan.recompute == Recompute::Full, Ability::Full);
  need(plan.recompute == Recompute::Op, Ability::Operators);
  need(!plan.full.empty(), Ability::Modules);
  // Whole layers are recomputed one by one, so that as many of every stage as one likes can be.
  const bool whole = plan.recompute == Recompute::Full && plan.recompute_layers.size() == 1;
  const auto some = [](const Recomputed& each) { return !each.layers.empty(); };
  need((!plan.recompute_layers.empty() && !whole) || std::any_of(plan.full.begin(), plan.full.end(), some),
       Ability::Layers);
  need(!plan.offload.empty(), Ability::Offload);
  need(!plan.shares.empty(), Ability::UnevenSamples);
  need(plan.h * plan.w > 1 || plan.tables, Ability::EveryOperator);
  return needed;
}

}  // namespace weft
