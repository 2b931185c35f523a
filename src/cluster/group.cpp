#include "cluster/group.h"

#include <algorithm>
#include <limits>

namespace weft {
namespace {

void count_links(std::vector<LinkId>& links, std::vector<LinkLoad>& uses) {
  std::sort(links.begin(), links.end());
  uses.clear();
  for (LinkId link : links) {
    if (uses.empty() || uses.back().link != link) uses.push_back({link, 0});
    ++uses.back().count;
  }
}

}  // namespace

void ring_links(const Cluster& cluster, std::span<const DeviceId> ring, std::vector<LinkLoad>& uses,
                std::vector<LinkId>& scratch) {
  scratch.clear();
  for (std::size_t i = 0; i < ring.size(); ++i)
    cluster.append_path(ring[i], ring[i + 1 == ring.size() ? 0 : i + 1], scratch);
  count_links(scratch, uses);
}

std::vector<LinkLoad> ring_links(const Cluster& cluster, std::span<const DeviceId> ring) {
  std::vector<LinkLoad> uses;
  std::vector<LinkId> scratch;
  ring_links(cluster, ring, uses, scratch);
  return uses;
}

std::vector<LinkLoad> pair_links(const Cluster& cluster, std::span<const DeviceId> group) {
  std::vector<LinkLoad> uses;
  std::vector<LinkId> links;
  for (DeviceId a : group)
    for (DeviceId b : group) cluster.append_path(a, b, links);
  count_links(links, uses);
  return uses;
}

GroupShape shape(const Cluster& cluster, std::span<const DeviceId> ring) {
  GroupShape shape;
  shape.devices = static_cast<int>(ring.size());
  std::vector<NodeId> nodes;
  for (DeviceId device : ring) nodes.push_back(cluster.node_of(device));
  std::sort(nodes.begin(), nodes.end());
  for (auto at = nodes.begin(); at != nodes.end();) {
    const auto end = std::upper_bound(at, nodes.end(), *at);
    const int here = static_cast<int>(end - at);
    shape.fewest_per_node = shape.nodes == 0 ? here : std::min(shape.fewest_per_node, here);
    shape.most_per_node = std::max(shape.most_per_node, here);
    ++shape.nodes;
    at = end;
  }
  shape.crosses_nodes = shape.nodes > 1;
  if (ring.size() < 2) return shape;
  shape.ring_bandwidth.value = std::numeric_limits<double>::infinity();
  for (const LinkLoad& use : ring_links(cluster, ring)) {
    const Link link = cluster.link(use.link);
    const BytesPerSecond share = link.bandwidth / use.count;
    shape.ring_latency += link.latency * use.count;
    shape.crosses_fabric |= link.kind == LinkKind::kFabric;
    if (share < shape.ring_bandwidth) {
      shape.ring_bandwidth = share;
      shape.slowest = link.kind;
    }
  }
  return shape;
}

BytesPerSecond bottleneck(const Cluster& cluster, std::span<const LinkId> path) {
  BytesPerSecond least{std::numeric_limits<double>::infinity()};
  for (LinkId link : path) least = std::min(least, cluster.link(link).bandwidth);
  return least;
}

Seconds latency(const Cluster& cluster, std::span<const LinkId> path) {
  Seconds sum;
  for (LinkId link : path) sum += cluster.link(link).latency;
  return sum;
}

}  // namespace weft
