#include "problem/sections.h"

#include <algorithm>

namespace weft {
namespace {

// By forward operator: its layer or, outside of layers, the last one that it depends on; −1: none; `count`: no layer
// depends on the operator.
IdVec<OpId, std::int64_t> layers_behind(const Graph& graph, const Layers& layers) {
  const auto forward = [&](OpId op) { return graph.ops()[op].phase == Phase::Forward; };
  IdVec<OpId, char> read_by_layer(graph.ops().size(), 0);
  for (std::size_t i = graph.ops().size(); i-- > 0;) {
    const OpId op(i);
    if (!forward(op) || (layers.of[op] < 0 && !read_by_layer[op])) continue;
    for (TensorId input : graph.inputs(op))
      if (const OpId producer = graph.tensors()[input].producer; producer.valid()) read_by_layer[producer] = 1;
  }
  IdVec<OpId, std::int64_t> behind(graph.ops().size(), -1);
  for (OpId op : graph.ops().ids()) {
    if (!forward(op)) break;
    if (layers.of[op] >= 0) {
      behind[op] = layers.of[op];
    } else if (!read_by_layer[op] && layers.count() > 0) {
      behind[op] = layers.count();
    } else {
      for (TensorId input : graph.inputs(op))
        if (const OpId producer = graph.tensors()[input].producer; producer.valid())
          behind[op] = std::max(behind[op], behind[producer]);
    }
  }
  return behind;
}

}  // namespace

std::size_t SectionKinds::number_of(const Signature& signature) {
  const auto known = std::find(signatures_.begin(), signatures_.end(), signature);
  if (known != signatures_.end()) return static_cast<std::size_t>(known - signatures_.begin());
  signatures_.push_back(signature);
  return signatures_.size() - 1;
}

int SectionKinds::kind_of(bool is_layer, std::vector<Step> steps) {
  const std::pair what(is_layer, std::move(steps));
  const auto known = std::find(known_.begin(), known_.end(), what);
  if (known != known_.end()) return static_cast<int>(known - known_.begin());
  known_.push_back(what);
  return count() - 1;
}

Sections find_sections(const Graph& graph, SectionKinds& kinds) {
  const Layers layers = find_layers(graph);
  const IdVec<OpId, std::int64_t> behind = layers_behind(graph, layers);
  Sections found;
  found.of.resize(graph.ops().size(), -1);
  std::vector<char> ended(layers.names.size(), 0);
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const bool is_layer = layers.of[op] >= 0;
    const bool same =
        !found.list.empty() && found.list.back().layer == behind[op] && found.list.back().is_layer == is_layer;
    if (!same) {
      if (is_layer && std::exchange(ended[static_cast<std::size_t>(behind[op])], 1)) found.apart = false;
      found.list.push_back({0, behind[op], is_layer});
    }
    found.of[op] = static_cast<int>(found.list.size()) - 1;
  }
  if (!found.apart) {
    found.list = {{0, -1, false}};
    for (OpId op : graph.ops().ids())
      if (found.of[op] >= 0) found.of[op] = 0;
  }
  IdVec<SignatureId, std::size_t> number(graph.signatures().size(), SIZE_MAX);
  IdVec<TensorId, char> read(graph.tensors().size(), 0);
  std::vector<std::vector<SectionKinds::Step>> does(found.list.size());
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward && graph.ops()[op].forward.valid())
      found.of[op] = found.of[graph.ops()[op].forward];
    if (found.of[op] < 0) continue;
    const SignatureId signature = graph.ops()[op].signature;
    if (number[signature] == SIZE_MAX) number[signature] = kinds.number_of(graph.signature(op));
    SectionKinds::Step step{number[signature]};
    for (TensorId input : graph.inputs(op))
      if (graph.tensors()[input].kind == TensorKind::Parameter && !std::exchange(read[input], 1)) ++step.parameters;
    does[static_cast<std::size_t>(found.of[op])].push_back(step);
  }
  for (std::size_t i = 0; i < found.list.size(); ++i)
    found.list[i].kind = kinds.kind_of(found.list[i].is_layer, std::move(does[i]));
  return found;
}

}  // namespace weft
