#include "strategy/layers.h"

#include <unordered_map>

namespace weft {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

Layers find_layers(const Graph& graph) {
  // The outermost numbered module at or above each; parents come before their children.
  IdVec<ModuleId, ModuleId> outermost(graph.modules().size());
  for (ModuleId id : graph.modules().ids()) {
    const Module& module = graph.modules()[id];
    if (module.parent.valid() && outermost[module.parent].valid())
      outermost[id] = outermost[module.parent];
    else if (is_number(module.name))
      outermost[id] = id;
  }
  Layers layers;
  layers.of.resize(graph.ops().size(), -1);
  std::unordered_map<ModuleId, int> index;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const ModuleId module = outermost[graph.ops()[op].module];
    if (!module.valid()) continue;
    const auto [known, fresh] = index.try_emplace(module, static_cast<int>(layers.names.size()));
    if (fresh) layers.names.push_back(graph.name(module));
    layers.of[op] = known->second;
  }
  return layers;
}

}  // namespace weft
