#include "report/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace weft {
namespace {

using Group = std::vector<DeviceId>;

// The bandwidth between members of the groups of a kind: one ring per group, all at the same time.
void measure(const Cluster& cluster, const std::vector<Group>& groups, GroupKind& kind) {
  std::map<LinkId, int> load;
  std::vector<std::vector<LinkLoad>> rings;
  kind.alone.value = kind.together.value = std::numeric_limits<double>::infinity();
  for (const Group& group : groups) {
    const GroupShape form = shape(cluster, group);
    kind.most_nodes = std::max(kind.most_nodes, form.nodes);
    kind.crosses_fabric = kind.crosses_fabric || form.crosses_fabric;
    if (form.ring_bandwidth < kind.alone) {
      kind.alone = form.ring_bandwidth;
      kind.slowest = form.slowest;
    }
    rings.push_back(ring_links(cluster, group));
    for (const LinkLoad& use : rings.back()) load[use.link] += use.count;
  }
  for (const std::vector<LinkLoad>& ring : rings)
    for (const LinkLoad& use : ring)
      kind.together = std::min(kind.together, cluster.link(use.link).bandwidth / load.at(use.link));
}

// The same for pipelines: in both directions between neighbours, without closing the ring.
void measure_chain(const Cluster& cluster, const std::vector<Group>& chains, GroupKind& kind) {
  std::vector<Group> pairs;
  for (const Group& chain : chains)
    for (std::size_t i = 0; i + 1 < chain.size(); ++i) pairs.push_back({chain[i], chain[i + 1]});
  measure(cluster, pairs, kind);
  for (const Group& chain : chains) kind.most_nodes = std::max(kind.most_nodes, shape(cluster, chain).nodes);
}

// The degrees that the axes of a mesh form (strategy/shorthand.h): those of experts refine the others.
std::vector<std::pair<std::string, MeshAxes>> degrees_of(const Mesh& mesh) {
  const auto set = [&](std::initializer_list<std::string_view> names) {
    MeshAxes axes = 0;
    for (std::string_view name : names)
      if (const int axis = mesh.axis_named(name); axis >= 0 && mesh.axes()[static_cast<std::size_t>(axis)].size > 1)
        axes |= MeshAxes{1} << axis;
    return axes;
  };
  const bool hybrid = set({"replicate"}) != 0, folded = set({"etp", "eptp"}) != 0;
  const MeshAxes experts = set({"ep", "ecp", "eptp"});
  const MeshAxes copies = set({"dp", "fsdp", "replicate", "cp"}) | (folded ? set({"tp"}) : 0);
  std::vector<std::pair<std::string, MeshAxes>> degrees = {
      {"tp", set({"tp", "etp", "eptp"})},
      {"etp", set({"etp"})},
      {"cp", set({"cp", "ecp"})},
      {"ep", experts},
      {std::string(hybrid ? "fsdp" : "dp"), set({"dp", "fsdp", "ep"})},
      {"edp", experts != 0 || folded ? copies : 0}};
  MeshAxes named = 0;
  for (const auto& [name, axes] : degrees) named |= name == "edp" ? 0 : axes;
  for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
    if ((named >> axis & 1u) == 0 && mesh.axes()[axis].size > 1)
      degrees.emplace_back(mesh.axes()[axis].name, MeshAxes{1} << axis);
  std::erase_if(degrees, [](const auto& degree) { return degree.second == 0; });
  return degrees;
}

}  // namespace

std::vector<GroupKind> group_kinds(const Plan& plan) {
  std::map<DeviceId, std::int64_t> rank_of;
  for (DeviceId device : plan.ranks()) rank_of.emplace(device, static_cast<std::int64_t>(rank_of.size()));
  const auto ranks = [&](const Group& group) {
    std::vector<std::int64_t> numbers;
    for (DeviceId device : group) numbers.push_back(rank_of.at(device));
    return numbers;
  };
  // Groups of every degree over all meshes of stages, each once; axes of placed operators are theirs alone.
  std::vector<GroupKind> kinds;
  std::map<std::string, std::vector<Group>> groups;
  const auto add_mesh = [&](const Mesh& mesh) {
    for (const auto& [name, axes] : degrees_of(mesh)) {
      if (!groups.contains(name)) {
        GroupKind& kind = kinds.emplace_back(GroupKind{.degree = name, .over = {}});
        for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
          if (axes >> axis & 1u) kind.over.push_back(mesh.axes()[axis].name);
      }
      for (int position = 0; position < mesh.size(); ++position) {
        if (mesh.group_leader(position, axes) != position) continue;
        Group group;
        for (int member : mesh.group(position, axes)) group.push_back(mesh.devices()[static_cast<std::size_t>(member)]);
        std::sort(group.begin(), group.end(), [&](DeviceId a, DeviceId b) { return rank_of.at(a) < rank_of.at(b); });
        groups[name].push_back(std::move(group));
      }
    }
  };
  const std::vector<StageMesh>& meshes = plan.resolved.meshes;
  for (auto stage = meshes.begin(); stage != meshes.end(); ++stage)
    if (std::none_of(meshes.begin(), stage, [&](const StageMesh& before) { return before.mesh == stage->mesh; }))
      add_mesh(stage->mesh);
  for (GroupKind& kind : kinds) {
    const std::vector<Group>& of = groups[kind.degree];
    kind.count = static_cast<std::int64_t>(of.size());
    for (const Group& group : of) kind.size = std::max(kind.size, static_cast<int>(group.size()));
    kind.first = ranks(of.front());
    measure(plan.cluster(), of, kind);
  }
  // Innermost first: the members of the innermost axis are the closest ranks.
  std::stable_sort(kinds.begin(), kinds.end(), [](const GroupKind& a, const GroupKind& b) {
    return a.first[1] - a.first[0] < b.first[1] - b.first[0];
  });
  std::vector<Group> chains;  // of every route
  std::size_t longest = 0;
  for (const RouteChoice& route : plan.resolved.routes) {
    const std::span<const StageMesh> pipeline =
        plan.resolved.ranks()
            .subspan(static_cast<std::size_t>(route.first))
            .first(std::min(static_cast<std::size_t>(route.stages),
                            plan.resolved.ranks().size() - static_cast<std::size_t>(route.first)));
    if (pipeline.size() < 2) continue;
    longest = std::max(longest, pipeline.size());
    std::size_t most = std::numeric_limits<std::size_t>::max();
    for (const StageMesh& rank : pipeline) most = std::min(most, rank.mesh.devices().size());
    for (std::size_t i = 0; i < most; ++i) {
      Group& chain = chains.emplace_back();
      for (const StageMesh& rank : pipeline) chain.push_back(rank.mesh.devices()[i]);
    }
  }
  if (!chains.empty()) {
    GroupKind kind{.degree = std::string(kPipelineAxis),
                   .over = {std::string(kPipelineAxis)},
                   .size = static_cast<int>(longest),
                   .count = static_cast<std::int64_t>(chains.size())};
    kind.first = ranks(chains.front());
    measure_chain(plan.cluster(), chains, kind);
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

std::string label_of(const GroupKind& kind) {
  if (kind.over == std::vector{kind.degree}) return kind.degree;
  return fmt::format("{} = {}", kind.degree, fmt::join(kind.over, "·"));
}

std::string links_of(const GroupKind& kind) {
  const auto link = [](LinkKind which) -> std::string {
    switch (which) {
      case LinkKind::kNvlink:
        return "NVLink";
      case LinkKind::kNvswitch:
        return "NVLink through NVSwitch";
      case LinkKind::kXgmi:
        return "xGMI";
      case LinkKind::kC2c:
        return "NVLink-C2C";
      case LinkKind::kMemory:
        return "memory";
      case LinkKind::kPcie:
        return "PCIe";
      case LinkKind::kSocket:
        return "sockets";
      case LinkKind::kNic:
        return "NICs";
      case LinkKind::kFabric:
        return "fabric";
    }
    return "?";
  };
  if (kind.most_nodes == 1) return "inside a node, " + link(kind.slowest);
  return fmt::format("across {} nodes, over {}{}", kind.most_nodes, link(kind.slowest),
                     kind.crosses_fabric && kind.slowest != LinkKind::kFabric ? " and the fabric" : "");
}

}  // namespace weft
