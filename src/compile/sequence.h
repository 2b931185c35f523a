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

#include <span>
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
  BodyEnd,     // the end of forward, and of backward: no operator
  Reduction,   // the place, after the last backward, for gradients that are reduced all at once; no operator
};

struct Turn {
  OpId op;
  TurnKind kind = TurnKind::Operator;
  Phase phase = Phase::Forward;
  bool weight_part = false;  // of backward: only weight gradients wait for it
  int route = 0;             // where stages are held twice: by which route of the pipeline
};

struct OperandUse {
  TurnId turn;
  std::uint32_t operand = 0;
  bool output = false;
  TensorId tensor;
};

struct OperandRef {
  GroupId group;
  std::uint32_t event = 0;
};

// Lists of things, one for every id, end to end.
template <class I, class T>
class ListsById {
 public:
  std::span<const T> operator[](I id) const {
    return {items_.data() + start_[id.index()], items_.data() + start_[id.index() + 1]};
  }
  // In two rounds: how many each list will have, then what they have, in order.
  void expect(std::size_t lists) { start_.assign(lists + 2, 0); }
  void count(I id) { ++start_[id.index() + 2]; }
  void allot() {
    for (std::size_t i = 1; i < start_.size(); ++i) start_[i] += start_[i - 1];
    items_.resize(start_.back());
  }
  void add(I id, T item) { items_[start_[id.index() + 1]++] = item; }

 private:
  std::vector<std::uint32_t> start_;
  std::vector<T> items_;
};

class Sequence {
 public:
  Sequence(const TrainingGraph& training, const RecomputeRegions& recompute, int routes);

  const IdVec<TurnId, Turn>& turns() const { return turns_; }
  std::size_t groups() const { return parameter_.size(); }
  std::span<const OperandUse> events(GroupId group) const { return events_[group]; }
  std::span<const TensorId> tensors(GroupId group) const { return tensors_[group]; }
  // Whether the group is a parameter's.
  bool is_parameter(GroupId group) const { return parameter_[group]; }
  GroupId group_of(TensorId tensor, int route) const {
    const GroupId group = group_of_[tensor];
    return route == 0 || shared_[group] ? group : GroupId(group.index() + groups_per_route_);
  }
  // The operands of a turn as events of their groups: inputs, then outputs; of an accumulation or optimizer operator
  // the one event of its parameter's group.
  std::span<const OperandRef> operands(TurnId turn) const { return operands_[turn]; }
  std::span<const TurnId> turns_of(OpId op) const { return turns_of_[op]; }
  TurnId reduction() const { return reduction_; }
  const std::vector<TurnId>& body_ends() const { return body_ends_; }

 private:
  void order(const TrainingGraph& training, const RecomputeRegions& recompute, int routes);
  void group(const TrainingGraph& training, int routes);
  void list_events(const Graph& graph, int routes);

  IdVec<TurnId, Turn> turns_;
  ListsById<OpId, TurnId> turns_of_;
  TurnId reduction_;
  std::vector<TurnId> body_ends_;
  IdVec<TensorId, GroupId> group_of_;
  IdVec<GroupId, char> parameter_, shared_;
  ListsById<GroupId, TensorId> tensors_;
  ListsById<GroupId, OperandUse> events_;
  std::size_t groups_per_route_ = 0;
  ListsById<TurnId, OperandRef> operands_;
};

}  // namespace weft
