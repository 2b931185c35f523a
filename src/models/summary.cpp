#include "models/summary.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/checked.h"
#include "graph/training.h"

namespace weft {
namespace {

std::int64_t elements_of(const Graph& graph, TensorId tensor) {
  return checked_product(graph.tensors()[tensor].type.shape).value_or(0);
}

// How many experts a token passes, for the expert layer `op`: found where its rows were dispatched.
std::optional<std::int64_t> chosen_experts(const Graph& graph, OpId op) {
  for (;;) {
    if (graph.kind(op) == OpKind::Dispatch) return graph.tensors()[graph.inputs(op)[1]].type.shape.back();
    const OpId producer = graph.tensors()[graph.inputs(op)[0]].producer;
    if (!producer.valid()) return std::nullopt;
    op = producer;
  }
}

std::int64_t active_parameters(const Graph& graph) {
  std::int64_t active = 0;
  for (TensorId id : graph.tensors().ids()) {
    if (graph.tensors()[id].kind != TensorKind::Parameter) continue;
    const std::int64_t elements = elements_of(graph, id);
    std::int64_t used = elements;
    for (const Use& use : graph.uses(id)) {
      if (graph.kind(use.op) != OpKind::ExpertLinear) continue;
      const std::int64_t experts = graph.tensors()[id].type.shape.front();
      if (const auto chosen = chosen_experts(graph, use.op)) used = elements / experts * std::min(*chosen, experts);
    }
    active += used;
  }
  return active;
}

struct Node {
  std::vector<ModuleId> children;
  std::int64_t parameters = 0, operators = 0;
  double flops = 0;
  std::vector<std::uint32_t> signatures;  // own operators, in order
  std::uint32_t shape = 0;                // equal for identical modules
};

bool is_number(std::string_view name) {
  return !name.empty() && name.size() < 10 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); });
}

class ModuleFolder {
 public:
  explicit ModuleFolder(const Graph& graph) : graph_(graph), nodes_(graph.modules().size()) {
    for (const Tensor& tensor : graph.tensors())
      if (tensor.kind == TensorKind::Parameter)
        nodes_[tensor.module].parameters += checked_product(tensor.type.shape).value_or(0);
    for (OpId op : graph.ops().ids()) {
      Node& node = nodes_[graph.ops()[op].module];
      ++node.operators;
      node.flops += contraction_flops(graph.signature(op)).value;
      node.signatures.push_back(graph.ops()[op].signature.index());
    }
    // Children come after their parents, so one pass backwards adds everything up.
    for (std::size_t i = graph.modules().size(); i-- > 0;) {
      const ModuleId id(i);
      Node& node = nodes_[id];
      std::reverse(node.children.begin(), node.children.end());
      std::vector<std::uint32_t> key{static_cast<std::uint32_t>(node.signatures.size())};
      key.insert(key.end(), node.signatures.begin(), node.signatures.end());
      key.push_back(static_cast<std::uint32_t>(node.parameters));
      key.push_back(static_cast<std::uint32_t>(node.parameters >> 32));
      for (ModuleId child : node.children) key.push_back(nodes_[child].shape);
      node.shape = shapes_.try_emplace(std::move(key), static_cast<std::uint32_t>(shapes_.size())).first->second;
      const ModuleId parent = graph.modules()[id].parent;
      if (!parent.valid()) continue;
      nodes_[parent].parameters += node.parameters;
      nodes_[parent].operators += node.operators;
      nodes_[parent].flops += node.flops;
      if (node.operators > 0) nodes_[parent].children.push_back(id);
    }
  }

  ModuleSummary fold(ModuleId id) const {
    const Node& node = nodes_[id];
    ModuleSummary summary{.name = graph_.modules()[id].name,
                          .parameters = node.parameters,
                          .operators = node.operators,
                          .flops_forward = {node.flops}};
    for (std::size_t i = 0; i < node.children.size();) {
      std::size_t end = i + 1;
      while (end < node.children.size() && continues(node.children[end - 1], node.children[end])) ++end;
      summary.children.push_back(fold(node.children[i]));
      summary.children.back().copies = static_cast<std::int64_t>(end - i);
      i = end;
    }
    return summary;
  }

 private:
  bool continues(ModuleId a, ModuleId b) const {
    const std::string &first = graph_.modules()[a].name, &second = graph_.modules()[b].name;
    return nodes_[a].shape == nodes_[b].shape && is_number(first) && is_number(second) &&
           std::stol(first) + 1 == std::stol(second);
  }

  const Graph& graph_;
  IdVec<ModuleId, Node> nodes_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> shapes_;
};

void collect_runs(const ModuleSummary& module, const std::string& path, std::vector<LayerRun>& runs) {
  for (const ModuleSummary& child : module.children) {
    if (is_number(child.name))
      runs.push_back({path, std::stol(child.name), child.copies, child.parameters, child.flops_forward});
    else
      collect_runs(child, path.empty() ? child.name : path + "." + child.name, runs);
  }
}

}  // namespace

ModelSummary summarize(const Graph& forward) {
  ModelSummary summary;
  summary.parameters = forward.parameter_count();
  summary.active_parameters = active_parameters(forward);
  for (TensorId id : forward.tensors().ids())
    if (forward.tensors()[id].kind == TensorKind::Parameter) summary.parameter_bytes += forward.bytes(id);
  std::map<std::string, std::int64_t> kinds;
  for (OpId op : forward.ops().ids()) {
    summary.flops_forward += contraction_flops(forward.signature(op));
    summary.pointwise_forward += pointwise_flops(forward.signature(op));
    ++kinds[std::string(name_of(forward.kind(op)))];
  }
  summary.operators = static_cast<std::int64_t>(forward.ops().size());
  summary.tensors = static_cast<std::int64_t>(forward.tensors().size());
  summary.unique_operators = static_cast<std::int64_t>(forward.signatures().size());
  summary.operators_by_kind.assign(kinds.begin(), kinds.end());
  std::stable_sort(summary.operators_by_kind.begin(), summary.operators_by_kind.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });

  const Result<TrainingGraph> training = make_training_graph(forward);
  if (training.ok()) {
    Flops total{};
    for (OpId op : training->graph.ops().ids()) total += contraction_flops(training->graph.signature(op));
    summary.flops_training = total;
    summary.activation_bytes = saved_bytes(*training, RecomputeRegions::none(training->graph));
  }
  return summary;
}

ModuleSummary module_tree(const Graph& forward) { return ModuleFolder(forward).fold(ModuleId(0)); }

std::vector<LayerRun> layer_runs(const Graph& forward) {
  std::vector<LayerRun> runs;
  collect_runs(module_tree(forward), "", runs);
  return runs;
}

}  // namespace weft
