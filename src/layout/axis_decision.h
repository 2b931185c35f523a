// How one operator is split along one mesh axis, given the placements of its inputs: the rules of propagation.
//
// A decision is made even if the operator's mesh has a single device along the axis: it cuts nothing there, but
// operators on a larger mesh downstream inherit it (stages of different shapes, operators placed individually).
#pragma once

#include "graph/graph.h"
#include "layout/sharding.h"

namespace weft {

struct AxisDecision {
  int axis = -1;  // the operator's axis that is split; −1: none
  std::int64_t outer = 1;
  Shares shares = {};                // of an uneven split
  std::uint64_t partial_inputs = 0;  // not 0: these inputs are partial sums and so are the outputs
  int ring = -1;                     // a second axis, split in the same way, whose parts rotate around a ring

  bool operator==(const AxisDecision&) const = default;
};

// How a tensor is placed along the mesh axis. Blocks that earlier mesh axes cut down to one per device do not count in
// `placement.outer`: if one mesh axis cuts dimension n.t into n parts and the next cuts within each part, the second
// one has outer = 1.
struct AxisPlacement {
  Placement placement = {};
  Shares shares = {};  // of an uneven split

  bool operator==(const AxisPlacement&) const = default;
};

// All decisions and placements along one mesh axis so far.
struct AxisState {
  IdVec<OpId, AxisDecision> decided;
  IdVec<TensorId, AxisPlacement> placed;
};

// The inputs of a decision besides the operator.
struct AxisContext {
  const Graph& graph;
  const IdVec<MeshId, Mesh>& meshes;
  const IdVec<OpId, MeshId>& mesh_of;
  int mesh_axis;
  const std::string& reduce_onto;
  bool ring;               // attention uses ring exchange along it
  const AxisState& state;  // has the decisions of the inputs' producers and the forward operators
};

// `settled` has the operator's cuts by the mesh axes before this one; `chosen` its explicit choices by mesh axis, null
// where there is none. Propagation does not split an axis that a later mesh axis is chosen to split unless both cuts
// fit. The error names an explicit choice that is impossible. Cost: operands × axes of the operator.
Result<AxisDecision> decide(const AxisContext& context, OpId op, const OpSharding& settled,
                            std::span<const AxisChoice* const> chosen);

// Whether the axis has a window. Parts of a window overlap their neighbours', so at most one mesh axis cuts such an
// axis.
bool windowed(const Signature& signature, int axis);

// How the operator's output is placed as a consequence; `settled` has its cuts by the mesh axes before this one.
AxisPlacement output_placement(const Signature& signature, std::size_t output, const AxisDecision& decision,
                               const OpSharding& settled, const Mesh& mesh);

}  // namespace weft
