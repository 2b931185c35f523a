#include "compile/turn_splits.h"

namespace weft {

TurnSplits::TurnSplits(const Graph& graph, const Sequence& sequence, const Placing& placing, const ShardingPlan& plan,
                       const Program& program)
    : sequence_(sequence), placing_(placing), plan_(plan), program_(program), memo_(graph), last_(graph.ops().size()) {}

MeshId TurnSplits::mesh_of(TurnId turn) const {
  const Turn& described = sequence_.turns()[turn];
  if (described.phase == Phase::Step) return program_.world;
  const MeshId mesh = plan_.ops[described.op].mesh;
  return described.route == 0 ? mesh : placing_.mirror[mesh];
}

const SplitOp& TurnSplits::of(TurnId turn) {
  const Turn& described = sequence_.turns()[turn];
  std::shared_ptr<const SplitOp>& known = last_[described.op];
  if (described.phase == Phase::Step) {
    known = on(described.op, replicated(program_.world, mesh(program_.world), {}));
    return *known;
  }
  const OpSharding& planned = plan_.ops[described.op];
  if (known && described.route == 0 && known->sharding == planned) return *known;
  if (described.route == 0) {
    known = memo_.split(described.op, planned, mesh(planned.mesh));
    return *known;
  }
  OpSharding wanted = planned;
  wanted.mesh = mesh_of(turn);
  known = memo_.split(described.op, wanted, mesh(wanted.mesh));
  return *known;
}

Layout TurnSplits::made(TensorId tensor, MeshId on) const {
  Layout made = plan_.made[tensor];
  made.mesh = on;
  return made;
}

}  // namespace weft
