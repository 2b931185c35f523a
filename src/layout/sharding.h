// How every operator of a graph is split over its mesh: a few explicit choices, the rest by propagation along the data.
//
// Each mesh axis is settled on its own. An operator without an explicit choice follows its inputs: it splits the axis
// that an input is already split on, preferring samples, then attributes, parameters, and a reduction last; partial
// sums pass through what is linear in them, and otherwise are reduced, onto the sequence where `reduce_onto` says so
// (sequence parallelism). Backward products are split as their forward operator. (axis_decision.h has the rules.)
//
// Meshes may differ in size: an axis of one device cuts nothing but hands on what it would have cut, so that samples
// are split over the four devices of one stage although the stage before has only one replica.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "graph/training.h"
#include "layout/layout.h"

namespace weft {

// An explicit choice for one operator on one mesh axis.
struct AxisChoice {
  std::string axis;        // of the operator; empty: not split by this mesh axis
  std::int64_t outer = 1;  // inside each of so many blocks
  Shares shares = {};      // of an uneven split, by coordinate

  bool operator==(const AxisChoice&) const = default;
};

// The dimension of an input that a mesh axis splits.
struct InputChoice {
  int dim = 0;
  Shares shares = {};  // of an uneven split, by coordinate
};

struct ShardingChoices {
  // [mesh axis][operator or tensor]
  std::vector<std::map<OpId, AxisChoice>> ops;
  std::vector<std::map<TensorId, InputChoice>> inputs;
  // Per mesh axis: the axis onto which partial sums are scattered by operators that have it ("s": sequence
  // parallelism); empty: none.
  std::vector<std::string> reduce_onto;
  // Mesh axes along which attention goes around a ring where they split its queries: they split its keys too.
  MeshAxes ring = 0;
};

struct ShardingPlan {
  IdVec<OpId, OpSharding> ops;  // forward and backward operators; those of the step are left unsplit
  IdVec<TensorId, Layout>
      made;  // the layout in which each tensor is made (operators), given (inputs) or first needed (parameters)

  bool operator==(const ShardingPlan&) const = default;
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

// Errors name the operator and the axis that cannot be split as asked. Cost: linear in operators times mesh axes.
Result<ShardingPlan> plan_sharding(const TrainingGraph& training, const Placing& placing,
                                   const ShardingChoices& choices);

// One operator's part of a strategy, changed.
struct ShardingEdit {
  OpId op;
  std::vector<std::optional<AxisChoice>> axes;  // by mesh axis; none: by propagation
  MeshId mesh = {};                             // of a forward operator; invalid: stays
};

// What an edit led to, each in ascending order.
struct ShardingDelta {
  std::vector<OpId> ops;          // whose split or mesh is another
  std::vector<TensorId> tensors;  // made in another layout

  bool operator==(const ShardingDelta&) const = default;
};

// A plan that follows changes to its strategy: after any edits it equals plan_sharding of the strategy as edited.
//
// Operators are settled in their order, all mesh axes of one after another. An edit settles the operator anew and then
// only what reads something that came out otherwise: readers of its outputs, its backward products, what runs where it
// runs. Cost of an edit: the operators settled anew, times the logarithm of their number; nothing is copied or scanned
// besides. Refers to the training graph, which must outlive it.
class ShardingPlanner {
 public:
  static Result<ShardingPlanner> make(const TrainingGraph& training, Placing placing, ShardingChoices choices);
  ShardingPlanner(ShardingPlanner&&) noexcept;
  ShardingPlanner& operator=(ShardingPlanner&&) noexcept;
  ~ShardingPlanner();

  const ShardingPlan& plan() const&;
  ShardingPlan plan() &&;
  const Placing& placing() const;
  const ShardingChoices& choices() const;

  // One more mesh for operators to move to, with the axes of the others.
  MeshId add_mesh(Mesh mesh, int stage);

  // All edits or, with an error, none.
  Result<ShardingDelta> change(std::span<const ShardingEdit> edits);
  Result<ShardingDelta> change(const ShardingEdit& edit) { return change(std::span(&edit, 1)); }

 private:
  class Settler;
  explicit ShardingPlanner(std::unique_ptr<Settler> settler);
  std::unique_ptr<Settler> settler_;
};

}  // namespace weft
