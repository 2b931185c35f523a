// How every operator of a graph is split over its mesh: a few explicit choices, the rest by propagation along the data.
//
// Each mesh axis is decided separately. An operator without an explicit choice follows its inputs: it splits the axis
// that an input is already split on, preferring sample, then attribute, parameter, and last reduction axes; partial
// sums pass through operators that are linear in them, and otherwise are reduced, onto the axis of `reduce_onto`
// (sequence parallelism) if given. Backward products are split like their forward operator. (Rules: axis_decision.h.)
//
// Meshes may differ in size: an axis of one device cuts nothing but passes the decision on, so that samples are split
// over the four replicas of one stage although the stage before has only one.
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
  std::int64_t outer = 1;  // the number of blocks each of which is cut
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
  // Per mesh axis: the axis onto which operators that have it reduce-scatter partial sums ("s": sequence
  // parallelism); empty: none.
  std::vector<std::string> reduce_onto;
  // Mesh axes along which attention is a ring where they split its queries: they split its keys too.
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
  // The mesh of all devices with a single axis; the compiler adds it if it is not given.
  MeshId world = {};
  // By mesh, the route of micro-batches that it serves, where a pipeline has several: each has a plan of its own, and
  // `mesh_of` is the first one's. Empty: there is one.
  IdVec<MeshId, int> route_of = {};

  int route(MeshId mesh) const { return route_of.contains(mesh) ? route_of[mesh] : 0; }
};
Placing on_one_mesh(const Graph& graph, Mesh mesh);

// Errors name the operator and the axis that cannot be split as asked. Cost: linear in operators times mesh axes.
Result<ShardingPlan> plan_sharding(const TrainingGraph& training, const Placing& placing,
                                   const ShardingChoices& choices);

// New choices for one operator.
struct ShardingEdit {
  OpId op;
  std::vector<std::optional<AxisChoice>> axes;  // by mesh axis; none: by propagation
  MeshId mesh = {};                             // the new mesh of a forward operator; invalid: unchanged
};

// The consequences of an edit, in ascending order.
struct ShardingDelta {
  std::vector<OpId> ops;          // whose split or mesh has changed
  std::vector<TensorId> tensors;  // whose layout has changed

  bool operator==(const ShardingDelta&) const = default;
};

// A plan that follows changes to its strategy: after any edits it equals plan_sharding of the strategy as edited.
//
// Operators are decided in their order, all mesh axes of an operator in turn. An edit decides its operator again and
// then only the operators whose inputs have changed: readers of its outputs, its backward products, sums of gradients
// on its mesh. Cost of an edit: n log n for n operators decided again; nothing else is copied or scanned. Refers to the
// training graph, which must outlive it.
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

  // Adds a mesh to which operators can move, with the same axes as the others.
  MeshId add_mesh(Mesh mesh, int stage);

  // Applies all edits or, with an error, none.
  Result<ShardingDelta> change(std::span<const ShardingEdit> edits);
  Result<ShardingDelta> change(const ShardingEdit& edit) { return change(std::span(&edit, 1)); }

 private:
  class Settler;
  explicit ShardingPlanner(std::unique_ptr<Settler> settler);
  std::unique_ptr<Settler> settler_;
};

}  // namespace weft
