#include "cluster/cluster.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/checked.h"

namespace weft {
namespace {

// A name must have one meaning: groups may come from several files, and reports and printed files identify them by
// name.
Status check_names(const std::vector<NodeGroup>& groups) {
  std::map<std::string_view, const NodeType*> types;
  std::map<std::string_view, const DeviceSpec*> devices;
  std::map<std::string_view, const LinkType*> links;
  for (const NodeGroup& group : groups) {
    const NodeParts& parts = group.type->parts();
    const auto [type, new_type] = types.emplace(parts.name, group.type.get());
    if (!new_type && type->second == group.type.get()) continue;
    if (!new_type && !(*type->second == *group.type))
      return error("two different nodes named '{}'; rename one", parts.name);
    for (const auto& spec : parts.specs)
      if (const auto [at, fresh] = devices.emplace(spec->name, spec.get()); !fresh && !(*at->second == *spec))
        return error("two different devices named '{}'; rename one", spec->name);
    for (const LinkType& link : parts.link_types)
      if (const auto [at, fresh] = links.emplace(link.name, &link); !fresh && !(*at->second == link))
        return error("two different links named '{}'; rename one", link.name);
  }
  return Ok{};
}

}  // namespace

Result<Cluster> Cluster::make(std::vector<NodeGroup> groups, FabricSpec fabric) {
  if (groups.empty()) return error("a cluster needs at least one node");
  if (groups.size() > kMostGroups) return error("{} groups of nodes: at most {}", groups.size(), kMostGroups);
  WEFT_TRY_OK(check(fabric));
  WEFT_TRY_OK(check_names(groups));
  Cluster cluster;
  std::vector<NodeRun> runs;
  std::int64_t links = 0;
  for (const NodeGroup& group : groups) {
    const NodeType& type = *group.type;
    if (group.nodes < 1) return error("{} nodes of '{}': at least 1", group.nodes, type.name());
    cluster.runs_.push_back({cluster.nodes_, cluster.devices_, links});
    const auto devices = checked_mul(group.nodes, type.device_count());
    if (!devices || *devices > kMostDevices - cluster.devices_)
      return error("{} nodes of '{}': a cluster has at most {} devices", group.nodes, type.name(),
                   grouped(kMostDevices));
    cluster.devices_ += *devices;
    cluster.nodes_ += group.nodes;
    links += group.nodes * type.link_count();  // at most 2^24 nodes of 2^14 links: no overflow
    NodeRun run{group.nodes, {}};
    for (int nic = 0; nic < type.nic_count(); ++nic) run.nic_rates.push_back(type.link(type.uplink(nic)).bandwidth);
    runs.push_back(std::move(run));
  }
  for (const NodeGroup& group : groups)
    if (cluster.nodes_ > 1 && group.type->nic_count() == 0)
      return error("'{}' has no NIC and cannot be joined with other nodes; add one, or ask for a single node",
                   group.type->name());
  cluster.fabric_ = Fabric(std::move(fabric), std::move(runs));
  cluster.fabric_links_ = links;
  if (cluster.link_count() >= std::numeric_limits<std::uint32_t>::max())
    return error("{} links: more than fit 32 bits; ask for fewer nodes", grouped(cluster.link_count()));
  cluster.groups_ = std::move(groups);
  return cluster;
}

std::size_t Cluster::group_of_node(NodeId node) const {
  WEFT_CHECK(node.index() < nodes_, "node {} of {}", node.index(), nodes_);
  std::size_t group = runs_.size() - 1;
  while (runs_[group].first_node > node.index()) --group;
  return group;
}

std::size_t Cluster::group_of_device(DeviceId device) const {
  WEFT_CHECK(device.index() < devices_, "device {} of {}", device.index(), devices_);
  std::size_t group = runs_.size() - 1;
  while (runs_[group].first_device > device.index()) --group;
  return group;
}

Cluster::Place Cluster::place(DeviceId device) const {
  const std::size_t group = group_of_device(device);
  const NodeType& type = *groups_[group].type;
  const std::int64_t offset = device.index() - runs_[group].first_device;
  const std::int64_t node = offset / type.device_count();
  return {&type, runs_[group].first_node + node, static_cast<int>(offset % type.device_count()),
          LinkId(static_cast<std::size_t>(runs_[group].first_link + node * type.link_count()))};
}

const DeviceSpec& Cluster::spec(DeviceId device) const {
  const Place at = place(device);
  return at.type->spec(at.index);
}
NodeId Cluster::node_of(DeviceId device) const { return NodeId(static_cast<std::size_t>(place(device).node)); }
int Cluster::index_in_node(DeviceId device) const { return place(device).index; }
const NodeType& Cluster::type_of(NodeId node) const { return *groups_[group_of_node(node)].type; }
double Cluster::host_of(DeviceId device) const { return place(device).type->parts().host.value; }
int Cluster::rail_of(DeviceId device) const {
  const Place at = place(device);
  return at.type->nic_of(at.index);
}

IdRange<DeviceId> Cluster::devices_of(NodeId node) const {
  const std::size_t group = group_of_node(node);
  const auto count = static_cast<std::size_t>(groups_[group].type->device_count());
  const auto first = static_cast<std::size_t>(runs_[group].first_device) +
                     (node.index() - static_cast<std::size_t>(runs_[group].first_node)) * count;
  return {DeviceId(first), DeviceId(first + count)};
}

Link Cluster::link(LinkId id) const {
  WEFT_CHECK(id.index() < link_count(), "link {} of {}", id.index(), link_count());
  if (id.index() >= fabric_links_) {
    const Fabric::Capacity capacity = fabric_.link(id.index() - fabric_links_);
    return {LinkKind::kFabric, capacity.bandwidth, capacity.latency, capacity.ample};
  }
  std::size_t group = runs_.size() - 1;
  while (runs_[group].first_link > id.index()) --group;
  const NodeType& type = *groups_[group].type;
  const NodeType::Link link = type.link(static_cast<int>((id.index() - runs_[group].first_link) % type.link_count()));
  return {link.kind, link.bandwidth, link.latency, false};
}

LinkId Cluster::reverse(LinkId id) const {
  // First links of groups and nodes are even, so within a node the other direction differs in the last bit.
  if (id.index() < fabric_links_) return LinkId(id.index() ^ 1u);
  return LinkId(static_cast<std::size_t>(fabric_links_ + fabric_.reverse(id.index() - fabric_links_)));
}

std::string Cluster::link_name(LinkId id) const {
  if (id.index() >= fabric_links_) return fmt::format("fabric.{}", id.index() - fabric_links_);
  std::size_t group = runs_.size() - 1;
  while (runs_[group].first_link > id.index()) --group;
  const NodeType& type = *groups_[group].type;
  const std::int64_t offset = id.index() - runs_[group].first_link;
  const NodeType::Link link = type.link(static_cast<int>(offset % type.link_count()));
  const auto vertex = [&](int v) -> std::string {
    return v == NodeParts::kNetwork ? "network" : type.parts().vertices[v].name;
  };
  return fmt::format("node{}.{} > {}", runs_[group].first_node + offset / type.link_count(), vertex(link.from),
                     vertex(link.to));
}

void Cluster::append_path(DeviceId a, DeviceId b, std::vector<LinkId>& out) const {
  if (a == b) return;
  const Place from = place(a), to = place(b);
  const auto device_a = from.type->device_vertices(), device_b = to.type->device_vertices();
  if (from.node == to.node) {
    from.type->append_route(device_a[from.index], device_a[to.index], from.first_link, out);
    return;
  }
  const int rail_b = to.type->nic_of(to.index);
  int sender = from.index;
  const auto* tree = std::get_if<TreeFabric>(&fabric_.spec());
  if (tree != nullptr && tree->rails && tree->relays && from.type->nic_of(sender) != rail_b &&
      rail_b < from.type->nic_count()) {
    const int relay = from.type->relay(from.index, rail_b);
    if (relay >= 0) {
      from.type->append_route(device_a[from.index], device_a[relay], from.first_link, out);
      sender = relay;
    }
  }
  const int rail_a = from.type->nic_of(sender);
  from.type->append_route(device_a[sender], from.type->nic_vertices()[rail_a], from.first_link, out);
  out.push_back(LinkId(from.first_link.index() + static_cast<std::size_t>(from.type->uplink(rail_a))));
  fabric_.append_path(from.node, rail_a, to.node, rail_b, LinkId(static_cast<std::size_t>(fabric_links_)), out);
  out.push_back(LinkId(to.first_link.index() + static_cast<std::size_t>(to.type->uplink(rail_b) ^ 1)));
  to.type->append_route(to.type->nic_vertices()[rail_b], device_b[to.index], to.first_link, out);
}

std::vector<LinkId> Cluster::path(DeviceId a, DeviceId b) const {
  std::vector<LinkId> links;
  append_path(a, b, links);
  return links;
}

void Cluster::append_host_path(DeviceId device, std::vector<LinkId>& out) const {
  const Place at = place(device);
  const int socket = at.type->socket_of(at.index);
  if (socket >= 0) at.type->append_route(at.type->device_vertices()[at.index], socket, at.first_link, out);
}

Result<std::vector<DeviceId>> devices_evenly(const Cluster& cluster, std::int64_t count) {
  const std::int64_t nodes = cluster.node_count();
  if (count > cluster.device_count())
    return error("{} devices: the cluster has {}; name more nodes", grouped(count), grouped(cluster.device_count()));
  if (count < nodes)
    return error("{} devices: the cluster has {} nodes, each with one at least; name fewer nodes", grouped(count),
                 grouped(nodes));
  // The part that a small node cannot hold goes to the others.
  std::vector<std::int64_t> of_node(static_cast<std::size_t>(nodes), 0);
  for (std::int64_t left = count; left > 0;) {
    std::vector<std::size_t> open;
    for (std::size_t node = 0; node < of_node.size(); ++node)
      if (of_node[node] < cluster.type_of(NodeId(node)).device_count()) open.push_back(node);
    const auto share = left / static_cast<std::int64_t>(open.size());
    auto more = left % static_cast<std::int64_t>(open.size());
    for (std::size_t node : open) {
      const std::int64_t room = cluster.type_of(NodeId(node)).device_count() - of_node[node];
      const std::int64_t taken = std::min(room, share + (more-- > 0 ? 1 : 0));
      of_node[node] += taken;
      left -= taken;
    }
  }
  std::vector<DeviceId> devices;
  for (std::size_t node = 0; node < of_node.size(); ++node)
    for (DeviceId device : cluster.devices_of(NodeId(node)))
      if (cluster.index_in_node(device) < of_node[node]) devices.push_back(device);
  return devices;
}

bool Cluster::operator==(const Cluster& other) const {
  return fabric_.spec() == other.fabric_.spec() &&
         std::equal(groups_.begin(), groups_.end(), other.groups_.begin(), other.groups_.end(),
                    [](const NodeGroup& a, const NodeGroup& b) { return a.nodes == b.nodes && *a.type == *b.type; });
}

}  // namespace weft
