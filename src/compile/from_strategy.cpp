#include "compile/from_strategy.h"

#include <algorithm>

namespace weft {

Result<CompiledStrategy> compile_strategy(const TrainingGraph& training, const ResolvedStrategy& strategy,
                                          const GradientSync& gradients) {
  const Graph& graph = training.graph;
  if (strategy.choices.size() != 1)
    return error("stages of different shapes with choices of their own are not compiled");
  if (!strategy.placed.empty()) return error("operators placed one by one are not compiled from a strategy");
  if (strategy.context == ContextMode::Ring) return error("ring attention is not compiled; use cp_mode=gather or a2a");
  const StorageChoice& storage = strategy.choices.front().storage;
  if (std::any_of(storage.offload.begin(), storage.offload.end(), [](bool offload) { return offload; }))
    return error("host offload is not compiled");

  const ScheduleChoice& chosen = strategy.schedule;
  WEFT_TRY(Schedule schedule,
           make_schedule({chosen.name, static_cast<std::int32_t>(chosen.ranks),
                          static_cast<std::int32_t>(chosen.micro_batches), static_cast<std::int32_t>(chosen.chunks)}));
  if (!replicated_stages(schedule).empty())
    return error("schedule {} holds every stage twice, which is not compiled", chosen.name);
  Placing placing;
  for (std::int32_t stage = 0; stage < schedule.stages(); ++stage) {
    placing.meshes.push_back(strategy.ranks[static_cast<std::size_t>(schedule.place_of(0, stage).rank)].mesh);
    placing.stage_of.push_back(stage);
  }
  placing.mesh_of.resize(graph.ops().size(), MeshId(0));
  for (OpId op : graph.ops().ids())
    if (graph.ops()[op].phase == Phase::Forward)
      placing.mesh_of[op] = MeshId(static_cast<std::size_t>(strategy.stage[op]));

  WEFT_TRY(const ShardingPlan plan, plan_sharding(training, placing, strategy.choices.front().sharding));
  const CompileOptions options{{storage.zero(), storage.axes_of(Stored::Optimizer)}, gradients};
  WEFT_TRY(Program program, compile(training, placing, plan, options, strategy.recompute));
  return CompiledStrategy{std::move(program), std::move(schedule)};
}

}  // namespace weft
