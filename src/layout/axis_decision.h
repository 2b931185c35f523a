// What one operator does along one mesh axis, given what the tensors it reads do: the rules of propagation.
//
// A decision is made even where the operator's mesh has a single device along the axis: it cuts nothing there, but what
// follows on a larger mesh takes it up (stages of different shapes, operators placed by themselves).
#pragma once

#include "graph/graph.h"
#include "layout/sharding.h"

namespace weft {

struct AxisDecision {
  int axis = -1;  // the operator's axis that is split; −1: none
  std::int64_t outer = 1;
  Shares shares = {};                // of an uneven split
  std::uint64_t partial_inputs = 0;  // not 0: these inputs are partial sums and so are the outputs
  int ring = -1;                     // another axis, split alike: its parts go around a ring

  bool operator==(const AxisDecision&) const = default;
};

// How a tensor is placed along the mesh axis. Blocks that the mesh axes before it cut down to one per device do not
// count in `placement.outer`: of a dimension n.t that one mesh axis cuts into n parts and the next within each part,
// the next cuts what is there.
struct AxisPlacement {
  Placement placement = {};
  Shares shares = {};  // of an uneven split

  bool operator==(const AxisPlacement&) const = default;
};

// Everything that is settled along one mesh axis.
struct AxisState {
  IdVec<OpId, AxisDecision> decided;
  IdVec<TensorId, AxisPlacement> placed;
};

// What a decision depends on besides the operator.
struct AxisContext {
  const Graph& graph;
  const IdVec<MeshId, Mesh>& meshes;
  const IdVec<OpId, MeshId>& mesh_of;
  int mesh_axis;
  const std::string& reduce_onto;
  bool ring;               // attention goes around it
  const AxisState& state;  // inputs and forward operators are settled in it
};

// `settled` has the operator's cuts by the mesh axes before this one; `chosen` its explicit choices, by mesh axis, null
// where there is none. What is chosen for a later mesh axis keeps propagation off where both do not fit. An error names
// an explicit choice that cannot be. Cost: operands × axes of the operator.
Result<AxisDecision> decide(const AxisContext& context, OpId op, const OpSharding& settled,
                            std::span<const AxisChoice* const> chosen);

// A window's parts overlap their neighbours', so one mesh axis at most cuts an axis that has one.
bool windowed(const Signature& signature, int axis);

// How the operator's output is placed as a consequence; `settled` has its cuts by the mesh axes before this one.
AxisPlacement output_placement(const Signature& signature, std::size_t output, const AxisDecision& decision,
                               const OpSharding& settled, const Mesh& mesh);

}  // namespace weft
