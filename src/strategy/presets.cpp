#include "strategy/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "strategy/structure.h"

namespace weft {
namespace {

std::vector<OpId> forward_ops(const Graph& graph) {
  std::vector<OpId> ops;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    ops.push_back(op);
  }
  return ops;
}

std::int64_t axis_size(const Signature& signature, std::string_view name) {
  const int axis = signature.axis_named(name);
  return axis < 0 ? 0 : signature.axes[static_cast<std::size_t>(axis)].size;
}

// One rule for an operator and its counterparts in other layers if all have the same split; else one per operator.
class OpRules {
 public:
  explicit OpRules(const Graph& graph) : graph_(graph), ops_(forward_ops(graph)) {}

  void add(OpId op, const std::string& mesh_axis, Split split) {
    splits_[op].insert_or_assign(mesh_axis, std::move(split));
  }

  std::vector<Rule> take() && {
    std::map<std::string, std::vector<OpId>> alike;
    std::vector<std::string> order;
    for (OpId op : ops_) {
      std::vector<OpId>& members = alike[layer_glob(graph_.name(op))];
      if (members.empty()) order.push_back(layer_glob(graph_.name(op)));
      members.push_back(op);
    }
    std::vector<Rule> rules;
    const auto append = [&](std::string match, OpId op) {
      Rule rule;
      rule.match = std::move(match);
      rule.compute = splits_.at(op);
      rules.push_back(std::move(rule));
    };
    for (const std::string& glob : order) {
      const std::vector<OpId>& members = alike.at(glob);
      const auto split_of = [&](OpId op) { return splits_.contains(op) ? &splits_.at(op) : nullptr; };
      const bool same = std::all_of(members.begin(), members.end(), [&](OpId op) {
        const auto *mine = split_of(op), *first = split_of(members.front());
        return mine == first || (mine && first && *mine == *first);
      });
      if (same && !split_of(members.front())) continue;
      if (same) {
        append(glob, members.front());
        continue;
      }
      for (OpId op : members)
        if (split_of(op)) append(graph_.name(op), op);
    }
    return rules;
  }

 private:
  const Graph& graph_;
  std::vector<OpId> ops_;
  std::map<OpId, std::map<std::string, Split>> splits_;
};

// Adds rules by name that keep whole the inputs without such a dimension, which the general rule would split.
void except_inputs(const Graph& graph, const std::vector<std::string>& axes, int InputDims::*dim, int value,
                   std::vector<Rule>& rules) {
  const IdVec<TensorId, InputDims> dims = find_input_dims(graph);
  std::map<std::string, Rule> exceptions;
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    if (tensor.kind != TensorKind::Input || dims[id].*dim >= 0) continue;
    const Shape& shape = tensor.type.shape;
    if (static_cast<int>(shape.size()) <= value || shape[static_cast<std::size_t>(value)] == 1) continue;
    Rule& rule = exceptions[layer_glob(graph.name(id))];
    rule.match = layer_glob(graph.name(id));
    for (const std::string& axis : axes) rule.inputs[axis] = {-1};
  }
  for (auto& [match, rule] : exceptions) rules.push_back(std::move(rule));
}

// The linear that reads what attention makes, through operators that only move data.
OpId linear_after(const Graph& graph, OpId op) {
  for (int steps = 0; steps < 8; ++steps) {
    const auto uses = graph.uses(graph.outputs(op).front());
    OpId next;
    for (const Use& use : uses)
      if (graph.ops()[use.op].phase == Phase::Forward && !next.valid()) next = use.op;
    if (!next.valid()) return {};
    op = next;
    if (graph.kind(op) == OpKind::Linear) return op;
  }
  return {};
}

}  // namespace

std::vector<Rule> data_parallel(const Graph& graph, std::span<const std::string> axes) {
  Rule all;
  all.match = "**";
  for (const std::string& axis : axes) all.inputs[axis] = {0};
  std::vector<Rule> rules = {std::move(all)};
  except_inputs(graph, {axes.begin(), axes.end()}, &InputDims::sample, 0, rules);
  return rules;
}

std::vector<Rule> context_parallel(const Graph& graph, const std::string& axis, ContextMode mode) {
  Rule all;
  all.match = "**";
  all.inputs[axis] = {1};
  std::vector<Rule> rules = {std::move(all)};
  except_inputs(graph, {axis}, &InputDims::sequence, 1, rules);
  if (mode != ContextMode::AllToAll) return rules;
  OpRules by_op(graph);
  const IdVec<OpId, int> cores = find_attention_cores(graph);
  for (OpId op : forward_ops(graph)) {
    const OpKind kind = graph.kind(op);
    if (cores[op] < 0 || (kind != OpKind::Attention && kind != OpKind::Matmul)) continue;
    by_op.add(op, axis, {"g"});
    const OpId next = linear_after(graph, op);
    if (next.valid()) by_op.add(next, axis, {"s"});
  }
  for (Rule& rule : std::move(by_op).take()) rules.push_back(std::move(rule));
  return rules;
}

std::vector<Rule> zero(int stage, std::span<const std::string> axes) {
  if (stage == 0 || axes.empty()) return {};
  Rule rule;
  rule.match = "**";
  const std::vector<std::string> over(axes.begin(), axes.end());
  rule.stored(Stored::Optimizer).over = over;
  if (stage >= 2) rule.stored(Stored::Gradients).over = over;
  if (stage >= 3) rule.stored(Stored::Weights).over = over;
  return {std::move(rule)};
}

std::vector<Rule> expert_zero(const Graph& graph, int stage, std::span<const std::string> axes) {
  std::vector<Rule> rules;
  std::set<std::string> modules;
  for (OpId op : forward_ops(graph))
    if (graph.kind(op) == OpKind::ExpertLinear && modules.insert(layer_glob(graph.name(op))).second)
      for (Rule& rule : zero(stage, axes)) {
        rule.match = layer_glob(graph.name(op));
        rules.push_back(std::move(rule));
      }
  return rules;
}

std::vector<Rule> tensor_parallel(const Graph& graph, std::span<const std::string> axes,
                                  std::span<const std::string> expert_axes, std::int64_t head_blocks) {
  OpRules rules(graph);
  const TensorParallel structure = find_tensor_parallel(graph, find_layers(graph));
  std::set<OpId> of_heads;  // linears that make heads, and that read them
  if (head_blocks > 1)
    for (const TensorParallel::Heads& heads : structure.heads) {
      of_heads.insert(heads.columns.begin(), heads.columns.end());
      if (const OpId next = linear_after(graph, heads.op); next.valid()) of_heads.insert(next);
      for (const std::string& axis : axes) rules.add(heads.op, axis, {"g"});
    }
  const auto blocks = [&](OpId op) { return of_heads.contains(op) ? head_blocks : 1; };
  const auto add = [&](OpId op, const Split& split) {
    const bool experts = graph.kind(op) == OpKind::ExpertLinear || graph.kind(op) == OpKind::WeighRows;
    for (const std::string& axis : experts ? expert_axes : axes) rules.add(op, axis, split);
  };
  for (const TensorParallelOp& found : structure.ops) {
    switch (found.role) {
      case TensorRole::Column:
      case TensorRole::Head:
        add(found.op, {"n", found.outer * blocks(found.op)});
        break;
      case TensorRole::Row:
        add(found.op, {"k", blocks(found.op)});
        // Routing weights are split along the sequence like the tokens; the rows they multiply are split by features.
        if (const OpId made = graph.tensors()[graph.inputs(found.op)[0]].producer;
            made.valid() && graph.kind(made) == OpKind::WeighRows)
          add(made, {"f"});
        break;
      case TensorRole::Vocabulary:
        add(found.op, {"v"});
        break;
    }
  }
  return std::move(rules).take();
}

std::vector<Rule> tensor_parallel(const Graph& graph, const std::string& axis) {
  return tensor_parallel(graph, std::span(&axis, 1), std::span(&axis, 1));
}

std::vector<Rule> expert_parallel(const Graph& graph, std::span<const std::string> axes) {
  OpRules rules(graph);
  for (OpId op : forward_ops(graph))
    if (graph.kind(op) == OpKind::ExpertLinear || graph.kind(op) == OpKind::WeighRows)
      for (const std::string& axis : axes) rules.add(op, axis, {"e"});
  return std::move(rules).take();
}

std::vector<Rule> hybrid_tables(const Graph& graph, const std::string& axis, int degree) {
  std::vector<Rule> rules = data_parallel(graph, std::vector<std::string>{axis});
  OpRules by_op(graph);
  std::map<std::string, Rule> whole_ids;
  for (OpId op : forward_ops(graph)) {
    if (graph.kind(op) != OpKind::Embedding) continue;
    const bool columns = axis_size(graph.signature(op), "d") % degree == 0;
    by_op.add(op, axis, {columns ? "d" : "v"});
    const TensorId ids = graph.inputs(op).front();
    if (graph.tensors()[ids].kind != TensorKind::Input) continue;
    Rule& rule = whole_ids[layer_glob(graph.name(ids))];
    rule.match = layer_glob(graph.name(ids));
    rule.inputs[axis] = {-1};
  }
  for (auto& [match, rule] : whole_ids) rules.push_back(std::move(rule));
  for (Rule& rule : std::move(by_op).take()) rules.push_back(std::move(rule));
  return rules;
}

std::vector<Rule> spatial(const Graph& graph, const std::string& height_axis, const std::string& width_axis) {
  std::vector<Rule> rules;
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    if (tensor.kind != TensorKind::Input || tensor.type.shape.size() != 4) continue;
    Rule rule;
    rule.match = graph.name(id);
    if (!height_axis.empty()) rule.inputs[height_axis] = {2};
    if (!width_axis.empty()) rule.inputs[width_axis] = {3};
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::vector<Rule> placed_data_parallel(const Graph& graph, std::span<const std::int64_t> devices) {
  std::vector<Rule> rules;
  for (OpId op : forward_ops(graph)) {
    Rule rule;
    rule.match = graph.name(op);
    rule.place = OpPlacement{{}, {devices.front()}};
    for (const Axis& axis : graph.signature(op).axes) {
      if (axis.kind != AxisKind::Sample || axis.size % static_cast<std::int64_t>(devices.size()) != 0) continue;
      rule.place = OpPlacement{{{axis.name, static_cast<int>(devices.size())}}, {devices.begin(), devices.end()}};
      break;
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace weft
