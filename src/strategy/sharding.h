// How every operator of a graph is split over its mesh: a few explicit choices, the rest by propagation along the data.
//
// Each mesh axis is settled on its own. An operator without an explicit choice follows its inputs: it splits the axis
// that an input is already split on, preferring samples, then attributes, parameters, and a reduction last; partial
// sums pass through what is linear in them, and otherwise are reduced, onto the sequence where `reduce_onto` says so
// (sequence parallelism). Backward products are split as their forward operator.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "graph/training.h"
#include "strategy/layout.h"

namespace weft {

// An explicit choice for one operator on one mesh axis.
struct AxisChoice {
  std::string axis;                      // of the operator; empty: not split by this mesh axis
  std::int64_t outer = 1;                // inside each of so many blocks
  std::vector<std::int64_t> sizes = {};  // uneven shares, one per coordinate
};

// The dimension of an input that a mesh axis splits.
struct InputChoice {
  int dim = 0;
  std::vector<std::int64_t> sizes = {};  // uneven shares, one per coordinate
};

struct ShardingChoices {
  // [mesh axis][operator or tensor]
  std::vector<std::map<OpId, AxisChoice>> ops;
  std::vector<std::map<TensorId, InputChoice>> inputs;
  // Per mesh axis: the axis onto which partial sums are scattered by operators that have it ("s": sequence
  // parallelism); empty: none.
  std::vector<std::string> reduce_onto;
};

struct ShardingPlan {
  IdVec<OpId, OpSharding> ops;  // forward and backward operators; those of the step are left unsplit
  IdVec<TensorId, Layout>
      made;  // the layout in which each tensor is made (operators), given (inputs) or first needed (parameters)
};

// Which mesh executes each operator, and which pipeline stage each mesh belongs to. All meshes have the same axes, in
// number and name; their sizes may differ. A pipeline has one mesh per stage; operators placed one by one have meshes
// of their own, all of one stage.
struct Placing {
  IdVec<MeshId, Mesh> meshes;
  IdVec<MeshId, int> stage_of;
  IdVec<OpId, MeshId>
      mesh_of;  // of forward operators; backward products follow theirs, sums of gradients their readers
  // All devices in a row; the compiler adds it where it is not given.
  MeshId world = {};
  // Where every stage is held twice (DualPipe): the mesh, of the same shape, that runs it by the other route.
  IdVec<MeshId, MeshId> mirror = {};
};
Placing on_one_mesh(const Graph& graph, Mesh mesh);

// Errors name the operator and the axis that cannot be split as asked.
Result<ShardingPlan> plan_sharding(const TrainingGraph& training, const Placing& placing,
                                   const ShardingChoices& choices);

}  // namespace weft
