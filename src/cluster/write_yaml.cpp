#include <map>

#include "cluster/cluster.h"
#include "cluster/library.h"

namespace weft {
namespace {

template <class T>
std::string figure_yaml(const Figure<T>& figure) {
  if constexpr (std::is_same_v<T, int>)
    return fmt::format("[{}, {}]", figure.value, yaml_quoted(figure.source));
  else
    return fmt::format("[{}, {}]", exact(figure.value), yaml_quoted(figure.source));
}

std::string device_yaml(const DeviceSpec& device) {
  std::string out = fmt::format("  {}:\n    title: {}\n    architecture: {}\n", device.name, yaml_quoted(device.title),
                                yaml_quoted(device.architecture));
  out += fmt::format("    memory: {}\n    memory_usable: {}\n    memory_bandwidth: {}\n", figure_yaml(device.memory),
                     figure_yaml(device.memory_usable), figure_yaml(device.memory_bandwidth));
  out += fmt::format("    compute_units: {}\n    copy_engines: {}\n    peak:\n", figure_yaml(device.compute_units),
                     figure_yaml(device.copy_engines));
  for (Arithmetic arithmetic : kArithmetics)
    if (const auto* peak = device.peak(arithmetic))
      out += fmt::format("      {}: {}\n", name(arithmetic), figure_yaml(*peak));
  return out;
}

std::string network_yaml(const NetworkTraits& network) {
  return fmt::format("  {}: {{collisions: [{}, {}], message: {}, jitter: {}, step_jitter: [{}, {}]}}\n", network.name,
                     network.collisions.value, yaml_quoted(network.collisions.source), figure_yaml(network.message),
                     figure_yaml(network.jitter), network.step_jitter.value, yaml_quoted(network.step_jitter.source));
}

std::string link_yaml(const LinkType& link) {
  return fmt::format("  {}: {{kind: {}, bandwidth: {}, latency: {}{}}}\n", link.name, name(link.kind),
                     figure_yaml(link.bandwidth), figure_yaml(link.latency),
                     link.network.name.empty() ? "" : ", network: " + link.network.name);
}

std::string node_yaml(const NodeParts& node) {
  std::string out = fmt::format("  {}:\n    title: {}\n    source: {}\n", node.name, yaml_quoted(node.title),
                                yaml_quoted(node.source));
  if (node.devices_forward) out += "    devices_forward: true\n";
  if (node.host.value != 1) out += fmt::format("    host: [{}, {}]\n", node.host.value, yaml_quoted(node.host.source));
  out += "    vertices:\n";
  for (const Vertex& vertex : node.vertices)
    out += fmt::format(
        "      {}: {}\n", vertex.name,
        vertex.kind == VertexKind::kDevice ? node.specs[vertex.spec]->name : std::string(name(vertex.kind)));
  if (!node.wires.empty()) out += "    wires:\n";
  for (const Wire& wire : node.wires)
    out += fmt::format("      - [{}, {}, {}, {}]\n", node.vertices[wire.from].name,
                       wire.to == NodeParts::kNetwork ? "network" : node.vertices[wire.to].name,
                       node.link_types[wire.type].name, wire.count);
  return out + "    fabric: " + fabric_yaml(node.fabric) + "\n";
}

}  // namespace

std::string fabric_yaml(const FabricSpec& fabric) {
  if (const auto* dragonfly = std::get_if<DragonflyFabric>(&fabric))
    return fmt::format(
        "{{kind: dragonfly, nodes_per_router: {}, routers_per_group: {}, local: {}, global: {}, latency: "
        "{}}}",
        dragonfly->nodes_per_router, dragonfly->routers_per_group, figure_yaml(dragonfly->local),
        figure_yaml(dragonfly->global), figure_yaml(dragonfly->latency));
  const auto& tree = std::get<TreeFabric>(fabric);
  if (tree.levels.empty()) return "{kind: switch}";
  std::string levels;
  for (const TreeFabric::Level& level : tree.levels)
    levels += fmt::format("{}{{nodes: {}, oversubscription: {}}}", levels.empty() ? "" : ", ", level.nodes,
                          level.oversubscription);
  return fmt::format("{{kind: {}, levels: [{}], latency: {}{}}}", tree.rails ? "rail-optimised" : "fat-tree", levels,
                     figure_yaml(tree.latency), tree.relays ? "" : ", relays: false");
}

std::string to_yaml(const Cluster& cluster) {
  std::map<std::string, std::string> devices, networks, links, nodes;
  std::string groups;
  for (const NodeGroup& group : cluster.groups()) {
    const NodeParts& parts = group.type->parts();
    groups += fmt::format("    - {{node: {}, count: {}}}\n", parts.name, group.nodes);
    nodes.emplace(parts.name, node_yaml(parts));
    for (const auto& spec : parts.specs) devices.emplace(spec->name, device_yaml(*spec));
    for (const LinkType& link : parts.link_types) {
      links.emplace(link.name, link_yaml(link));
      if (!link.network.name.empty()) networks.emplace(link.network.name, network_yaml(link.network));
    }
  }
  std::string out = "devices:\n";
  for (const auto& [unused, text] : devices) out += text;
  if (!networks.empty()) out += "networks:\n";
  for (const auto& [unused, text] : networks) out += text;
  if (!links.empty()) out += "links:\n";
  for (const auto& [unused, text] : links) out += text;
  out += "nodes:\n";
  for (const auto& [unused, text] : nodes) out += text;
  return out + "cluster:\n  groups:\n" + groups + "  fabric: " + fabric_yaml(cluster.fabric().spec()) + "\n";
}

}  // namespace weft
