// The order of a training step, which does not depend on how operators are split: every operator's turns, and which
// tensors are lowered together.
//
// A *turn* is one run of an operator: forward, again in backward where it is recomputed, a backward product, an
// optimizer step. A *group* is a set of tensors whose buffers depend on one another: views of one memory, the values
// and weights of a softmax merge, a parameter with its gradients and optimizer state. Its *events* are the turns that
// write or read them, in order. What a group is lowered to (lowering.h) follows from its events and from how their
// operators are split, and from nothing else: that makes the change of one operator local. Cost: linear in operators
// and operands.
#pragma once

#include <span>
#include <vector>

#include "compile/compile.h"

namespace weft {

using TurnId = Id<struct TurnTag>;
using GroupId = Id<struct TensorGroupTag>;

enum class TurnKind : std::uint8_t {
  Operator,    // an operator of the network or of its backward pass
  Accumulate,  // adds a term to a parameter's gradient
  Optimizer,   // an operator on a parameter and what belongs to it
  ScalarSum,   // sums scalars over all parameters: the gradient norm
  Scalar,      // an operator on scalars that all devices have
  BodyEnd,     // the end of forward, and of backward: no operator
  Reduction,   // after the last backward, for gradients that are reduced together: no operator
};

struct Turn {
  OpId op;
  TurnKind kind = TurnKind::Operator;
  Phase phase = Phase::Forward;
  bool weight_part = false;  // of backward: only gradients of weights depend on it (Instruction::weight_part)
  int route = 0;             // of micro-batches, where a pipeline has several
};

// An event of a group: a turn writes or reads one of its tensors.
struct OperandUse {
  TurnId turn;
  std::uint32_t operand = 0;  // among the operator's inputs, or its outputs
  bool output = false;
  TensorId tensor;
};

// An event by its group and its number there.
struct OperandRef {
  GroupId group;
  std::uint32_t event = 0;
};

// Lists, one for every id, in one array (compressed sparse rows).
template <class I, class T>
class ListsById {
 public:
  std::span<const T> operator[](I id) const {
    return {items_.data() + start_[id.index()], items_.data() + start_[id.index() + 1]};
  }
  // Filled in two rounds: `count` every item, `allot`, then `add` every item, in order.
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
  Sequence(const TrainingGraph& training, std::span<const RouteSplit> routes);

  const IdVec<TurnId, Turn>& turns() const { return turns_; }
  std::size_t groups() const { return parameter_.size(); }
  std::span<const OperandUse> events(GroupId group) const { return events_[group]; }
  std::span<const TensorId> tensors(GroupId group) const { return tensors_[group]; }
  // Whether it is the group of a parameter, with its gradient and optimizer state.
  bool is_parameter(GroupId group) const { return parameter_[group]; }
  GroupId group_of(TensorId tensor, int route) const {
    const GroupId group = group_of_[tensor];
    return shared_[group] ? group : GroupId(group.index() + static_cast<std::size_t>(route) * groups_per_route_);
  }
  // The operands of a turn as events of their groups: inputs, then outputs. An accumulation or optimizer operator has
  // one event in its parameter's group, and one for every scalar that it reads from another group.
  std::span<const OperandRef> operands(TurnId turn) const { return operands_[turn]; }
  std::span<const TurnId> turns_of(OpId op) const { return turns_of_[op]; }
  TurnId reduction() const { return reduction_; }
  const std::vector<TurnId>& body_ends() const { return body_ends_; }
  int routes() const { return routes_; }

 private:
  void order(const TrainingGraph& training, std::span<const RouteSplit> routes);
  void order_backward(const TrainingGraph& training, const RecomputeRegions& recompute, int route);
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
  int routes_ = 1;
  std::size_t groups_per_route_ = 0;
  ListsById<TurnId, OperandRef> operands_;
};

}  // namespace weft
