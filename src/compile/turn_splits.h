// How the operators of each turn are split, and on which mesh: by the sharding plan of the turn's route; the step is
// played by all devices.
#pragma once

#include "compile/sequence.h"
#include "layout/sharding.h"
#include "layout/split_memo.h"
#include "program/program.h"

namespace weft {

class TurnSplits {
 public:
  // All are kept by reference. The program's meshes and the plans may change between calls.
  TurnSplits(const Graph& graph, const Sequence& sequence, const Placing& placing, std::span<const RouteSplit> routes,
             const Program& program);

  const Mesh& mesh(MeshId id) const { return program_.meshes[id]; }
  MeshId mesh_of(TurnId turn) const;
  // The operator's sharding and the layouts of its operands; valid until the operator is asked for again.
  const SplitOp& of(TurnId turn);
  // The sharding of an operator on parameter-shaped tensors that works on this layout.
  std::shared_ptr<const SplitOp> on(OpId op, const Layout& layout) {
    return memo_.split_as(op, layout, mesh(layout.mesh));
  }
  // The way from one layout to another on the same mesh: by bytes, or by the price for elements of a type.
  std::shared_ptr<const Resharding> reshard(const Layout& from, const Layout& to, const StepPrice* price = nullptr,
                                            DType dtype = DType::F32) {
    return memo_.reshard(from, to, mesh(to.mesh), price, dtype);
  }
  // The layout in which the plan of the mesh's route has a tensor made, on this mesh.
  Layout made(TensorId tensor, MeshId on) const;
  // How the plan of the mesh's route shards an operator, whatever the turn.
  const OpSharding& planned(OpId op, MeshId on) const { return plan(placing_.route(on)).ops[op]; }
  // How the plan of the turn's route shards its operator.
  const OpSharding& planned(TurnId turn) const {
    const Turn& described = sequence_.turns()[turn];
    return plan(described.route).ops[described.op];
  }

 private:
  const ShardingPlan& plan(int route) const { return routes_[static_cast<std::size_t>(route)].plan; }

  const Sequence& sequence_;
  const Placing& placing_;
  const std::span<const RouteSplit> routes_;
  const Program& program_;
  SplitMemo memo_;
  IdVec<OpId, std::shared_ptr<const SplitOp>> last_;  // as each operator was asked for last
};

}  // namespace weft
