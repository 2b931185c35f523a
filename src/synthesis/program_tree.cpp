// Programs as strategy trees, and the meshes that they are for.
#include <algorithm>
#include <map>

#include "synthesis/rules.h"

namespace weft {

bool makes_weight_gradients(const Signature& signature) {
  return !signature.contractions.empty() && !signature.outputs.empty() &&
         std::all_of(signature.outputs.begin(), signature.outputs.end(),
                     [](const Operand& output) { return output.weight; });
}

std::vector<DeviceClass> device_classes(const SharedMesh& mesh, const Cluster& cluster) {
  std::vector<DeviceClass> classes;
  std::map<std::pair<const DeviceSpec*, std::vector<std::int64_t>>, std::size_t> known;
  for (int position = 0; position < mesh.mesh.size(); ++position) {
    const DeviceSpec* spec = &cluster.spec(mesh.mesh.devices()[static_cast<std::size_t>(position)]);
    std::vector<std::int64_t> shares;
    for (std::size_t m = 0; m < mesh.ratio.size(); ++m)
      for (const Shares* of : {&mesh.ratio[m].samples, &mesh.ratio[m].others, &mesh.ratio[m].stored})
        shares.push_back(
            of->empty() ? 1 : (*of)[static_cast<std::size_t>(mesh.mesh.coordinate(position, static_cast<int>(m)))]);
    const auto [found, fresh] = known.try_emplace({spec, std::move(shares)}, classes.size());
    if (fresh) classes.push_back({spec, {}});
    classes[found->second].positions.push_back(position);
  }
  return classes;
}

namespace {

bool differ(const Shares& shares) {
  return std::any_of(shares.begin(), shares.end(), [&](std::int64_t share) { return share != shares.front(); });
}

}  // namespace

std::optional<Shares> rounded_shares(std::int64_t size, std::int64_t granule, std::int64_t inner, int parts,
                                     const Shares& ratio) {
  if (!differ(ratio)) {
    if (size % parts != 0 || size / parts % granule != 0) return std::nullopt;
    return Shares{};
  }
  // What later mesh axes cut must divide too, where there is enough of it.
  if (size % (granule * inner) == 0 && size / (granule * inner) >= parts) granule *= inner;
  if (size % granule != 0 || size / granule < parts) return std::nullopt;
  const Shares shares = reduced(nearest_shares(size, granule, ratio));
  if (std::any_of(shares.begin(), shares.end(), [](std::int64_t share) { return share < 1; })) return std::nullopt;
  return shares;
}

Strategy to_tree(const ProgramSpace& space, const std::vector<std::uint32_t>& option, const TrainingGraph& training) {
  const Graph& graph = training.graph;
  const std::vector<MeshAxis>& axes = space.mesh.mesh.axes();
  Strategy tree;
  tree.mesh.axes = axes;
  for (DeviceId device : space.mesh.mesh.devices()) tree.mesh.devices.push_back(device.index());
  tree.schedule.name = "gpipe";
  const auto computed = [&](const std::vector<AxisChoice>& split) {
    std::map<std::string, Split> result;
    for (std::size_t m = 0; m < axes.size(); ++m)
      result[axes[m].name] = {split[m].axis, split[m].outer, split[m].shares};
    return result;
  };
  const auto names_of = [&](MeshAxes over) {
    std::vector<std::string> names;
    for (std::size_t m = 0; m < axes.size(); ++m)
      if (over >> m & 1u) names.push_back(axes[m].name);
    return names;
  };
  std::map<OpId, OpId> weight_gradients;  // by forward operator
  for (OpId op : IdRange<OpId>(training.first_backward, training.first_step))
    if (graph.ops()[op].forward.valid() && makes_weight_gradients(graph.signature(op)))
      weight_gradients.emplace(graph.ops()[op].forward, op);
  for (VariableId v : space.ops.ids()) {
    if (space.ops[v].empty()) continue;
    const Distribution& chosen = space.meaning[v][option[v.index()]];
    for (OpId op : space.ops[v]) {
      Rule rule{.match = graph.name(op), .compute = computed(chosen.split)};
      tree.rules.push_back(std::move(rule));
      if (chosen.weight_gradient)
        tree.rules.push_back(
            {.match = graph.name(weight_gradients.at(op)), .compute = computed(*chosen.weight_gradient)});
      for (TensorId input : graph.inputs(op)) {
        if (graph.tensors()[input].kind != TensorKind::Parameter || graph.uses(input).front().op != op ||
            chosen.optimizer == 0)
          continue;
        Rule stored{.match = graph.name(input)};
        for (const auto& [kind, over] :
             {std::pair(Stored::Optimizer, chosen.optimizer), std::pair(Stored::Gradients, chosen.gradients),
              std::pair(Stored::Weights, chosen.weights)}) {
          if (over == 0) continue;
          stored.stored(kind).over = names_of(over);
          for (std::size_t m = 0; m < axes.size(); ++m)
            if (const Shares& shares = space.mesh.ratio[m].stored; (over >> m & 1u) != 0 && differ(shares))
              stored.stored(kind).ratio[axes[m].name] = reduced(shares);
        }
        tree.rules.push_back(std::move(stored));
      }
    }
  }
  return tree;
}

}  // namespace weft
