// The order of a training step, before anything is known of how it is split: every operator's turns, and which tensors
// live together.
//
// A *turn* is one run of an operator: forward, again in backward where it is recomputed, a backward product, an
// optimizer step. A *group* is a set of tensors whose buffers depend on one another: views of one memory, the values
// and weights of a softmax merge, a parameter with its gradients and optimizer state. Its *events* are the turns that
// make or need them, in order. What becomes of a group (lowering.h) follows from its events and from how their
// operators are split, and from nothing else: that is what makes a change of one operator local. Cost: linear in
// operators and operands.
#pragma once

#include <vector>

#include "graph/training.h"

namespace weft {

using TurnId = Id<struct TurnTag>;
using GroupId = Id<struct TensorGroupTag>;

enum class TurnKind : std::uint8_t {
  Operator,    // an operator of the network or of its backward pass
  Accumulate,  // adds a term to a parameter's gradient
  Optimizer,   // an operator on a parameter and what belongs to it
  ScalarSum,   // over all parameters
  Scalar,      // on scalars that everybody has
  Reduction,   // the place, after the last backward, for gradients that are reduced all at once; no operator
};

struct Turn {
  OpId op;
  TurnKind kind = TurnKind::Operator;
  Phase phase = Phase::Forward;
  bool weight_part = false;  // of backward: only weight gradients wait for it
  int route = 0;             // where stages are held twice: by which route of the pipeline
};

struct Event {
  TurnId turn;
  std::uint32_t operand = 0;
  bool output = false;
  TensorId tensor;
};

struct OperandRef {
  GroupId group;
  std::uint32_t event = 0;
};

class Sequence {
 public:
  Sequence(const TrainingGraph& training, const RecomputeRegions& recompute, int routes);

  const IdVec<TurnId, Turn>& turns() const { return turns_; }
  const IdVec<GroupId, std::vector<Event>>& events() const { return events_; }
  const std::vector<TensorId>& tensors(GroupId group) const { return tensors_[group]; }
  // Whether the group is a parameter's.
  bool is_parameter(GroupId group) const { return parameter_[group]; }
  GroupId group_of(TensorId tensor, int route) const {
    const GroupId group = group_of_[tensor];
    return route == 0 || shared_[group] ? group : GroupId(group.index() + groups_per_route_);
  }
  // The operands of a turn as events of their groups: inputs, then outputs; of an accumulation or optimizer operator
  // the one event of its parameter's group.
  std::span<const OperandRef> operands(TurnId turn) const {
    return {refs_.data() + first_ref_[turn.index()], refs_.data() + first_ref_[turn.index() + 1]};
  }
  const std::vector<TurnId>& turns_of(OpId op) const { return turns_of_[op]; }
  TurnId reduction() const { return reduction_; }

 private:
  void order(const TrainingGraph& training, const RecomputeRegions& recompute, int routes);
  void group(const TrainingGraph& training, int routes);
  void list_events(const Graph& graph);

  IdVec<TurnId, Turn> turns_;
  IdVec<OpId, std::vector<TurnId>> turns_of_;
  TurnId reduction_;
  IdVec<TensorId, GroupId> group_of_;
  IdVec<GroupId, char> parameter_, shared_;
  IdVec<GroupId, std::vector<TensorId>> tensors_;
  IdVec<GroupId, std::vector<Event>> events_;
  std::size_t groups_per_route_ = 0;
  std::vector<OperandRef> refs_;
  std::vector<std::size_t> first_ref_;
};

}  // namespace weft
