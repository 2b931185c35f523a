#include "compile/from_strategy.h"

#include <algorithm>

#include "compile/check_compiled.h"
#include "program/last_micro_batch.h"
#include "strategy/layers.h"
#include "strategy/placing.h"

namespace weft {
namespace {

// Adds a second route: a mesh for every stage, of the devices of the rank that holds it for micro-batches of the other
// direction.
void add_mirrored_route(PlacedStrategy& placed, const Schedule& schedule) {
  const std::vector<Place>&first = schedule.routes.front(), &second = schedule.routes.back();
  Placing& placing = placed.placing;
  const std::size_t stages = first.size();
  PlacedRoute mirrored = placed.routes.front();
  for (MeshId& mesh : mirrored.mesh_of) mesh = MeshId(stages + mesh.index());
  placing.route_of.resize(stages, 0);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    std::size_t neighbour = 0;  // the stage that this rank has by the first route
    while (first[neighbour].rank != second[stage].rank) ++neighbour;
    const Mesh mesh = placing.meshes[MeshId(neighbour)];
    placing.meshes.push_back(mesh);
    placing.stage_of.push_back(static_cast<int>(stages + stage));
    placing.route_of.push_back(1);
  }
  placed.routes.push_back(std::move(mirrored));
}

// The table of a pipeline, or of several beside one another.
Result<Schedule> schedule_of(const ResolvedStrategy& strategy) {
  const ScheduleChoice& chosen = strategy.schedule;
  const auto number = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  if (strategy.routes.size() == 1)
    return make_schedule({chosen.name, number(chosen.ranks), number(chosen.micro_batches), number(chosen.chunks)});
  std::vector<Schedule> pipelines;
  for (const RouteChoice& route : strategy.routes) {
    WEFT_TRY(Schedule own, make_schedule({chosen.name, number(route.stages), number(route.micro_batches), 0}));
    pipelines.push_back(std::move(own));
  }
  return side_by_side(pipelines);
}

// FSDP's units: a sharded parameter belongs to the layer that uses it first, or to the unit of all outside the layers.
IdVec<TensorId, int> units_of(const Graph& graph, const MemoryPlan& memory) {
  const Layers layers = find_layers(graph);
  IdVec<TensorId, int> unit(graph.tensors().size(), -1);
  for (TensorId id : graph.tensors().ids())
    if (graph.tensors()[id].kind == TensorKind::Parameter && !graph.uses(id).empty() && memory.of(id).weights != 0)
      unit[id] = layers.of[graph.uses(id)[0].op] + 1;
  return unit;
}

bool splits_backward(const Schedule& schedule) {
  for (const std::vector<Action>& actions : schedule.actions)
    for (const Action& action : actions)
      if (action.body == Body::BackwardWeight) return true;
  return false;
}

ParameterStorage parameter_storage(const StorageChoice& choice) {
  ParameterStorage storage;
  storage.weights = choice.axes_of(Stored::Weights);
  storage.gradients = choice.axes_of(Stored::Gradients);
  storage.optimizer = choice.axes_of(Stored::Optimizer);
  storage.ratio = choice.ratio;
  storage.offload = choice.offload;
  return storage;
}

}  // namespace

Result<CompiledStrategy> compile_strategy(const TrainingGraph& training, const ResolvedStrategy& strategy,
                                          CompileOptions options, const Graph* last) {
  WEFT_TRY(Schedule schedule, schedule_of(strategy));
  WEFT_TRY(PlacedStrategy placed, place(strategy, training.graph));
  if (schedule.routes.size() > 1) {
    if (!strategy.placed.empty())
      return error("schedule {} holds every stage twice, which leaves no room for operators placed one by one",
                   schedule.name);
    if (last)
      return error(
          "schedule {} has several routes, and only one of them would see the smaller last micro-batch; choose a "
          "global batch that divides, or another schedule",
          schedule.name);
    if (placed.routes.size() == 1) add_mirrored_route(placed, schedule);
  }
  std::vector<ShardingPlan> plans;
  for (const PlacedRoute& route : placed.routes) {
    placed.placing.mesh_of = route.mesh_of;
    WEFT_TRY(ShardingPlan plan, plan_sharding(training, placed.placing, route.choices));
    plans.push_back(std::move(plan));
  }
  std::vector<RouteSplit> routes;
  for (std::size_t i = 0; i < plans.size(); ++i)
    routes.push_back({plans[i], strategy.routes[std::min(i, strategy.routes.size() - 1)].recompute});
  MemoryPlan memory = parameter_storage(placed.storage);
  memory.offload[static_cast<std::size_t>(Stored::Activations)] = false;  // saved_on_host lists the operators
  memory.saved_on_host = strategy.saved_on_host;
  for (const auto& [id, own] : placed.parameters) memory.parameters.emplace_back(id, parameter_storage(own));
  if (memory.most_zero() >= 3) options.parameters.unit = units_of(training.graph, memory);
  options.memory = std::move(memory);
  options.split_backward = options.split_backward || splits_backward(schedule);
  WEFT_TRY(Program program, compile(training, placed.placing, std::move(routes), options));
  CompiledStrategy compiled{std::move(program), std::move(schedule)};
  check_compiled(compiled.program, training.graph, compiled.schedule);
  if (last) {
    WEFT_TRY(compiled.last, for_last_micro_batch(compiled.program, training.graph, *last));
    check_compiled(*compiled.last, *last, compiled.schedule);
  }
  return compiled;
}

CompileOptions compile_options(const SoftwareStack& stack, const Cluster& cluster, const NumberTypes& types) {
  TransferSync transfers{.overlap = stack.p2p_overlap.value, .node = {}};
  if (stack.p2p_in_parts.value)
    for (std::int64_t device = 0; device < cluster.device_count(); ++device)
      transfers.node.push_back(static_cast<int>(cluster.node_of(DeviceId(static_cast<std::size_t>(device))).index()));
  return {.gradients = {.overlap = stack.gradient_overlap.value,
                        .bucket = stack.gradient_bucket.value,
                        .term_bucket = stack.scatter_bucket.value,
                        .flat = stack.flat_gradients.value},
          .parameters = {.prefetch_forward = stack.prefetch_forward.value,
                         .prefetch_backward = stack.prefetch_backward.value,
                         .in_flight = stack.gathers_in_flight.value,
                         .reshard_after_forward = stack.reshard_after_forward.value,
                         .flat = stack.flat_parameters.value},
          .keep_gathered_input = stack.keep_gathered_input.value,
          .tensor_overlap = stack.tensor_overlap.value,
          .tokens_once = stack.tokens_once.value,
          .uneven_parts = stack.uneven_parts.value,
          .types = types,
          .transfers = std::move(transfers)};
}

}  // namespace weft
