#include "mixed/stage_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "strategy/presets.h"

namespace weft {
namespace {

// The rules that recompute a layer of the stage; `full` names modules of all layers, "layers.*.mlp.up".
void recompute_layer(const RecomputeSet& set, std::int64_t layer, std::vector<Rule>& rules) {
  if (set.base == Recompute::None) return;
  const std::string name = fmt::format("layers.{}", layer);
  rules.push_back({.match = name, .recompute = set.base});
  for (const std::string& glob : set.full) {
    constexpr std::string_view kAll = "layers.*";
    if (glob.starts_with(kAll))
      rules.push_back({.match = name + glob.substr(kAll.size()), .recompute = Recompute::Full});
  }
}

}  // namespace

Strategy tree_of(std::span<const MixedPipeline> routes, const std::vector<DeviceKind>& kinds,
                 const LayerPattern& layers, const Graph& graph) {
  Strategy tree;
  tree.schedule.name = "1f1b";
  tree.schedule.micro_batches = 0;
  std::vector<std::size_t> taken(kinds.size(), 0);
  std::int32_t most_tp = 1, most_dp = 1;
  std::vector<Rule> recomputed;
  for (std::size_t route = 0; route < routes.size(); ++route) {
    const MixedPipeline& pipeline = routes[route];
    tree.schedule.micro_batches += pipeline.micro_batches;
    if (routes.size() > 1)
      tree.schedule.routes.push_back({static_cast<std::int64_t>(pipeline.stages.size()), pipeline.micro_batches, {}});
    const std::size_t before = recomputed.size();
    for (const MixedPipeline::Stage& of : pipeline.stages) {
      Stage& stage = tree.schedule.stages.emplace_back();
      stage.layers = of.layers;
      stage.mesh.emplace();
      stage.mesh->axes = {{"dp", of.option.dp}, {"tp", of.option.tp}};
      const std::vector<std::int64_t>& devices = kinds[of.kind].devices;
      for (std::int64_t i = 0; i < of.devices(); ++i) stage.mesh->devices.push_back(devices[taken[of.kind]++]);
      most_tp = std::max(most_tp, of.option.tp);
      most_dp = std::max(most_dp, of.option.dp);
      const RecomputeSet& set = layers.recompute.sets[static_cast<std::size_t>(of.option.recompute)];
      for (std::int64_t layer = of.first; layer < of.first + of.layers; ++layer)
        recompute_layer(set, layer, recomputed);
    }
    if (routes.size() > 1)
      for (std::size_t i = before; i < recomputed.size(); ++i) recomputed[i].route = static_cast<std::int64_t>(route);
  }
  if (tree.schedule.stages.size() > 1) {
    tree.mesh.axes = {{"pp", static_cast<int>(tree.schedule.stages.size())}, {"dp", 1}, {"tp", 1}};
  } else {
    tree.mesh = *tree.schedule.stages.front().mesh;
    tree.schedule.stages.clear();
  }
  if (most_tp > 1) tree.reduce_onto["tp"] = "s";
  const std::vector<std::string> data = {"dp"};
  const auto append = [&](std::vector<Rule> rules) {
    for (Rule& rule : rules) tree.rules.push_back(std::move(rule));
  };
  if (most_dp > 1) append(data_parallel(graph, data));
  if (most_tp > 1) append(tensor_parallel(graph, "tp"));
  if (most_dp > 1) append(zero(1, data));
  append(std::move(recomputed));
  return tree;
}

}  // namespace weft
