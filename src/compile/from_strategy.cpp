#include "compile/from_strategy.h"

#include <algorithm>

#include "strategy/placing.h"

namespace weft {

Result<CompiledStrategy> compile_strategy(const TrainingGraph& training, const ResolvedStrategy& strategy,
                                          const GradientSync& gradients) {
  if (strategy.context == ContextMode::Ring) return error("ring attention is not compiled; use cp_mode=gather or a2a");
  for (const MeshChoices& choices : strategy.choices) {
    const auto offloads = [](const StorageChoice& storage) {
      return std::find(storage.offload.begin(), storage.offload.end(), true) != storage.offload.end();
    };
    if (offloads(choices.storage) || std::any_of(choices.parameters.begin(), choices.parameters.end(),
                                                 [&](const auto& own) { return offloads(own.second); }))
      return error("host offload is not compiled; leave offload out");
    if (!choices.parameters.empty())
      return error("{} is stored in another way than the rest, which is not compiled; write memory rules for '**' only",
                   training.graph.name(choices.parameters.begin()->first));
  }
  const ScheduleChoice& chosen = strategy.schedule;
  WEFT_TRY(Schedule schedule,
           make_schedule({chosen.name, static_cast<std::int32_t>(chosen.ranks),
                          static_cast<std::int32_t>(chosen.micro_batches), static_cast<std::int32_t>(chosen.chunks)}));
  if (!replicated_stages(schedule).empty())
    return error("schedule {} holds every stage twice, which is not compiled; take 1f1b, zb-v or dualpipe-v",
                 chosen.name);

  WEFT_TRY(const PlacedStrategy placed, place(strategy, training.graph));
  WEFT_TRY(const ShardingPlan plan, plan_sharding(training, placed.placing, placed.choices));
  const CompileOptions options{{placed.storage.zero(), placed.storage.axes_of(Stored::Optimizer)}, gradients};
  WEFT_TRY(Program program, compile(training, placed.placing, plan, options, strategy.recompute));
  return CompiledStrategy{std::move(program), std::move(schedule)};
}

}  // namespace weft
