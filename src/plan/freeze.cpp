#include "plan/freeze.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/suggest.h"
#include "strategy/glob.h"

namespace weft {
namespace {

struct Item {
  std::string_view text;  // as written
  bool trained = false;   // after !
  Glob glob;
};

std::vector<Item> items_of(std::string_view globs) {
  std::vector<Item> items;
  while (!globs.empty()) {
    const std::size_t plus = std::min(globs.find('+'), globs.size());
    const std::string_view text = globs.substr(0, plus);
    globs.remove_prefix(std::min(plus + 1, globs.size()));
    const bool trained = text.starts_with('!');
    items.push_back({text, trained, Glob(text.substr(trained ? 1 : 0))});
  }
  return items;
}

bool covers_any(const Graph& graph, const Item& item) {
  for (TensorId id : graph.tensors().ids())
    if (graph.tensors()[id].kind == TensorKind::Parameter && item.glob.covers(graph.name(id))) return true;
  return false;
}

// Names of all parameters and of the modules above them, with layer numbers replaced by *.
std::vector<std::string> known_nodes(const Graph& graph) {
  std::set<std::string> known;
  for (TensorId id : graph.tensors().ids()) {
    if (graph.tensors()[id].kind != TensorKind::Parameter) continue;
    std::string node = layer_glob(graph.name(id));
    for (;;) {
      known.insert(node);
      const std::size_t dot = node.rfind('.');
      if (dot == std::string::npos) break;
      node.resize(dot);
    }
  }
  return {known.begin(), known.end()};
}

}  // namespace

Result<std::vector<TensorId>> frozen_parameters(const Graph& graph, std::string_view globs) {
  const std::vector<Item> items = items_of(globs);
  for (const Item& item : items)
    if (item.text.substr(item.trained ? 1 : 0).empty() || !covers_any(graph, item))
      return error("--freeze '{}': covers no parameter of the model{}", item.text,
                   did_you_mean(std::string(item.text.substr(item.trained ? 1 : 0)), known_nodes(graph)));
  std::vector<TensorId> frozen;
  if (items.empty()) return frozen;
  for (TensorId id : graph.tensors().ids()) {
    if (graph.tensors()[id].kind != TensorKind::Parameter) continue;
    const std::string name = graph.name(id);
    const auto last =
        std::find_if(items.rbegin(), items.rend(), [&](const Item& item) { return item.glob.covers(name); });
    if (last != items.rend() && !last->trained) frozen.push_back(id);
  }
  return frozen;
}

std::string freeze_in(const Graph& graph, std::string_view globs) {
  std::string kept;
  for (const Item& item : items_of(globs))
    if (covers_any(graph, item)) kept += fmt::format("{}{}", kept.empty() ? "" : "+", item.text);
  return kept;
}

}  // namespace weft
