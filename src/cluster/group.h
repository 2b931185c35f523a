// The links of a ring over a group of devices, and the group's extent over nodes.
#pragma once

#include <span>
#include <vector>

#include "cluster/cluster.h"

namespace weft {

struct LinkLoad {
  LinkId link;
  int count = 0;  // members of the ring whose path to the next one crosses the link
  bool operator==(const LinkLoad&) const = default;
};

// The links of the ring ring[0] → ring[1] → … → ring[0], each with its multiplicity, by link id. Empty for
// one member. Cost: the summed path lengths, plus a sort of them.
std::vector<LinkLoad> ring_links(const Cluster& cluster, std::span<const DeviceId> ring);
// The same with a workspace that the caller reuses.
void ring_links(const Cluster& cluster, std::span<const DeviceId> ring, std::vector<LinkLoad>& uses,
                std::vector<LinkId>& scratch);

// The links of every ordered pair of members: an all-to-all. Quadratic in the members.
std::vector<LinkLoad> pair_links(const Cluster& cluster, std::span<const DeviceId> group);

struct GroupShape {
  int devices = 0;
  int nodes = 0;  // distinct nodes
  int fewest_per_node = 0;
  int most_per_node = 0;
  bool crosses_nodes = false;
  bool crosses_fabric = false;           // some ring path takes a fabric link (leaves its leaf or rail switch)
  LinkKind slowest = LinkKind::kMemory;  // kind of the ring's slowest link, multiplicity counted
  BytesPerSecond ring_bandwidth;         // least bandwidth / multiplicity over the ring's links
  Seconds ring_latency;                  // sum of path latencies once around
};
GroupShape shape(const Cluster& cluster, std::span<const DeviceId> ring);

// Least bandwidth and summed latency along a path.
BytesPerSecond bottleneck(const Cluster& cluster, std::span<const LinkId> path);
Seconds latency(const Cluster& cluster, std::span<const LinkId> path);

}  // namespace weft
