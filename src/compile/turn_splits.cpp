#include "compile/turn_splits.h"

namespace weft {

TurnSplits::TurnSplits(const Graph& graph, const Sequence& sequence, const Placing& placing,
                       std::span<const RouteSplit> routes, const Program& program)
    : sequence_(sequence),
      placing_(placing),
      routes_(routes),
      program_(program),
      memo_(graph),
      last_(graph.ops().size()) {}

MeshId TurnSplits::mesh_of(TurnId turn) const {
  return sequence_.turns()[turn].phase == Phase::Step ? program_.world : planned(turn).mesh;
}

const SplitOp& TurnSplits::of(TurnId turn) {
  const Turn& described = sequence_.turns()[turn];
  std::shared_ptr<const SplitOp>& known = last_[described.op];
  if (described.phase == Phase::Step) {
    known = on(described.op, replicated(program_.world, mesh(program_.world), {}));
    return *known;
  }
  const OpSharding& wanted = planned(turn);
  if (!known || known->sharding != wanted) known = memo_.split(described.op, wanted, mesh(wanted.mesh));
  return *known;
}

Layout TurnSplits::made(TensorId tensor, MeshId on) const {
  Layout made = plan(placing_.route(on)).made[tensor];
  made.mesh = on;
  return made;
}

}  // namespace weft
