#include "compile/sequence.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

TurnKind step_kind(const Signature& signature) {
  if (signature.kind == OpKind::AddScalars) return TurnKind::ScalarSum;
  return signature.kind == OpKind::ClipCoefficient ? TurnKind::Scalar : TurnKind::Optimizer;
}

bool makes_weight_gradients_only(const Graph& graph, OpId op) {
  if (graph.kind(op) == OpKind::Accumulate) return true;
  if (!graph.ops()[op].forward.valid()) return false;
  const Signature& signature = graph.signature(op);
  return std::all_of(signature.outputs.begin(), signature.outputs.end(),
                     [](const Operand& output) { return output.weight; });
}

class UnionFind {
 public:
  explicit UnionFind(std::size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0u); }
  std::uint32_t find(std::uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(TensorId a, TensorId b) {
    const std::uint32_t x = find(a.index()), y = find(b.index());
    parent_[std::max(x, y)] = std::min(x, y);
  }

 private:
  std::vector<std::uint32_t> parent_;
};

}  // namespace

Sequence::Sequence(const TrainingGraph& training, std::span<const RouteSplit> routes)
    : routes_(static_cast<int>(routes.size())) {
  order(training, routes);
  group(training, static_cast<int>(routes.size()));
  list_events(training.graph, static_cast<int>(routes.size()));
}

void Sequence::order(const TrainingGraph& training, std::span<const RouteSplit> routes) {
  const Graph& graph = training.graph;
  for (int route = 0; route < static_cast<int>(routes.size()); ++route)
    for (OpId op : IdRange<OpId>(training.first_backward.index()))
      turns_.push_back({op, TurnKind::Operator, Phase::Forward, false, route});
  body_ends_.push_back(turns_.push_back({OpId(), TurnKind::BodyEnd, Phase::Forward, false, 0}));
  for (int route = 0; route < static_cast<int>(routes.size()); ++route)
    order_backward(training, routes[static_cast<std::size_t>(route)].recompute, route);
  body_ends_.push_back(turns_.push_back({OpId(), TurnKind::BodyEnd, Phase::Backward, false, 0}));
  reduction_ = turns_.push_back({OpId(), TurnKind::Reduction, Phase::Step, false, 0});
  for (OpId op : IdRange<OpId>(training.first_step, OpId(graph.ops().size())))
    turns_.push_back({op, step_kind(graph.signature(op)), Phase::Step, false, 0});

  turns_of_.expect(graph.ops().size());
  for (const Turn& turn : turns_)
    if (turn.op.valid()) turns_of_.count(turn.op);
  turns_of_.allot();
  for (TurnId turn : turns_.ids())
    if (turns_[turn].op.valid()) turns_of_.add(turns_[turn].op, turn);
}

void Sequence::order_backward(const TrainingGraph& training, const RecomputeRegions& recompute, int route) {
  const Graph& graph = training.graph;
  int regions = 0;
  for (int region : recompute.region) regions = std::max(regions, region + 1);
  std::vector<std::vector<OpId>> region_ops(static_cast<std::size_t>(regions));
  for (OpId op : IdRange<OpId>(training.first_backward.index()))
    if (recompute.again(op)) region_ops[static_cast<std::size_t>(recompute.of(op))].push_back(op);
  std::vector<char> recomputed(static_cast<std::size_t>(regions), 0);
  for (OpId op : IdRange<OpId>(training.first_backward, training.first_step)) {
    // Before the first backward operator of a recomputed region, its forward operators run again.
    if (const int region = recompute.of(graph.ops()[op].forward);
        region >= 0 && !std::exchange(recomputed[static_cast<std::size_t>(region)], 1))
      for (OpId again : region_ops[static_cast<std::size_t>(region)])
        turns_.push_back({again, TurnKind::Operator, Phase::Backward, false, route});
    turns_.push_back({op, graph.kind(op) == OpKind::Accumulate ? TurnKind::Accumulate : TurnKind::Operator,
                      Phase::Backward, makes_weight_gradients_only(graph, op), route});
  }
}

void Sequence::group(const TrainingGraph& training, int routes) {
  const Graph& graph = training.graph;
  UnionFind sets(graph.tensors().size());
  const auto is_world_scalar = [&](TensorId tensor) {
    if (graph.tensors()[tensor].kind == TensorKind::Scalar) return true;
    const OpId producer = graph.tensors()[tensor].producer;
    return producer.valid() && graph.ops()[producer].phase == Phase::Step &&
           step_kind(graph.signature(producer)) != TurnKind::Optimizer;
  };
  for (OpId op : graph.ops().ids()) {
    const Signature& signature = graph.signature(op);
    const auto inputs = graph.inputs(op), outputs = graph.outputs(op);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (const int viewed = signature.outputs[i].aliases; viewed >= 0)
        sets.join(outputs[i], inputs[static_cast<std::size_t>(viewed)]);
    // The log-sum-exp that weighs the contributions of attention over split keys is reduced along with them; sums of
    // scalars are reduced in one collective.
    if (signature.kind == OpKind::AddScalars ||
        std::any_of(signature.outputs.begin(), signature.outputs.end(),
                    [](const Operand& output) { return output.reducer == Reducer::LogSumExp; }))
      for (TensorId output : outputs) sets.join(outputs.front(), output);
    const bool step = graph.ops()[op].phase == Phase::Step;
    if (signature.kind != OpKind::Accumulate && !(step && step_kind(signature) == TurnKind::Optimizer)) continue;
    for (const auto operands : {inputs, outputs})
      for (TensorId tensor : operands)
        if (!is_world_scalar(tensor)) sets.join(inputs.front(), tensor);
  }
  for (const auto& [parameter, sum] : training.accumulated) sets.join(parameter, sum);

  group_of_.resize(graph.tensors().size());
  for (TensorId id : graph.tensors().ids()) {
    const TensorId root(sets.find(id.index()));
    if (root == id) {
      group_of_[id] = parameter_.push_back(0);
      shared_.push_back(0);
    }
    const GroupId group = group_of_[id] = group_of_[root];
    const Tensor& tensor = graph.tensors()[id];
    if (tensor.kind == TensorKind::Parameter) parameter_[group] = shared_[group] = 1;
    if (tensor.producer.valid() && graph.ops()[tensor.producer].phase == Phase::Step) shared_[group] = 1;
  }
  groups_per_route_ = parameter_.size();
  for (int route = 1; route < routes; ++route)
    for (std::size_t i = 0; i < groups_per_route_; ++i) {
      parameter_.push_back(parameter_[GroupId(i)]);
      shared_.push_back(shared_[GroupId(i)]);
    }
  const auto for_all = [&](const auto& take) {
    for (TensorId id : graph.tensors().ids())
      for (int route = 0; route == 0 || (route < routes && !shared_[group_of_[id]]); ++route)
        take(group_of(id, route), id);
  };
  tensors_.expect(groups());
  for_all([&](GroupId group, TensorId) { tensors_.count(group); });
  tensors_.allot();
  for_all([&](GroupId group, TensorId tensor) { tensors_.add(group, tensor); });
}

void Sequence::list_events(const Graph& graph, int routes) {
  const auto for_all = [&](const auto& take) {
    for (TurnId id : turns_.ids()) {
      const Turn& turn = turns_[id];
      if (!turn.op.valid()) continue;
      const auto refer = [&](TensorId tensor, std::size_t operand, bool output) {
        take(group_of(tensor, turn.route), OperandUse{id, static_cast<std::uint32_t>(operand), output, tensor});
      };
      const auto inputs = graph.inputs(turn.op), outputs = graph.outputs(turn.op);
      if (turn.kind == TurnKind::Accumulate || turn.kind == TurnKind::Optimizer) {
        refer(inputs.front(), 0, false);
        // A scalar that all devices have is read where it is; the event extends its life in its own group.
        for (std::size_t i = 0; i < inputs.size(); ++i)
          if (group_of(inputs[i], turn.route) != group_of(inputs.front(), turn.route)) refer(inputs[i], i, false);
      } else {
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          refer(inputs[i], i, false);
          // A mean over micro-batches has the terms of all routes.
          for (int route = 1; turn.kind == TurnKind::ScalarSum && route < routes; ++route)
            if (const GroupId other = group_of(inputs[i], route); other != group_of(inputs[i], 0))
              take(other, OperandUse{id, static_cast<std::uint32_t>(i), false, inputs[i]});
        }
        for (std::size_t i = 0; i < outputs.size(); ++i) refer(outputs[i], i, true);
      }
    }
  };
  events_.expect(groups());
  operands_.expect(turns_.size());
  for_all([&](GroupId group, const OperandUse& event) {
    events_.count(group);
    operands_.count(event.turn);
  });
  events_.allot();
  operands_.allot();
  IdVec<GroupId, std::uint32_t> listed(groups(), 0);
  for_all([&](GroupId group, const OperandUse& event) {
    operands_.add(event.turn, {group, listed[group]++});
    events_.add(group, event);
  });
}

}  // namespace weft
