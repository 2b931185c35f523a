#include "mixed/device_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace weft {
namespace {

bool same_spec(const DeviceSpec& a, const DeviceSpec& b) { return &a == &b || a == b; }
bool same_type(const NodeType& a, const NodeType& b) { return &a == &b || a == b; }

std::map<NodeId, std::vector<std::int64_t>> by_node(const Cluster& cluster, const std::vector<std::int64_t>& devices) {
  std::map<NodeId, std::vector<std::int64_t>> nodes;
  for (std::int64_t device : devices)
    nodes[cluster.node_of(DeviceId(static_cast<std::size_t>(device)))].push_back(device);
  return nodes;
}

}  // namespace

std::vector<DeviceKind> kinds_of(const PlanProblem& problem) {
  const Cluster& cluster = problem.cluster();
  std::vector<DeviceKind> kinds;
  std::vector<DeviceId> like;  // a device of each kind
  for (std::int64_t rank = 0; rank < problem.devices; ++rank) {
    const DeviceId device = problem.device_at(rank);
    const auto alike = [&](DeviceId other) {
      return same_spec(cluster.spec(device), cluster.spec(other)) &&
             same_type(cluster.type_of(cluster.node_of(device)), cluster.type_of(cluster.node_of(other)));
    };
    const auto known = std::find_if(like.begin(), like.end(), alike);
    const auto at = static_cast<std::size_t>(known - like.begin());
    if (known == like.end()) {
      like.push_back(device);
      kinds.push_back({.name = cluster.spec(device).name, .devices = {}});
    }
    kinds[at].devices.push_back(static_cast<std::int64_t>(device.index()));
  }
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    std::vector<std::int64_t> sorted;
    for (const auto& [node, devices] : by_node(cluster, kinds[k].devices)) {
      const auto count = static_cast<std::int64_t>(devices.size());
      kinds[k].per_node = sorted.empty() ? count : std::min(kinds[k].per_node, count);
      sorted.insert(sorted.end(), devices.begin(), devices.end());
    }
    kinds[k].devices = std::move(sorted);
    const std::string& spec = cluster.spec(like[k]).name;
    const bool shared =
        std::count_if(like.begin(), like.end(), [&](DeviceId other) { return cluster.spec(other).name == spec; }) > 1;
    if (shared) kinds[k].name = fmt::format("{} in {}", spec, cluster.type_of(cluster.node_of(like[k])).name());
  }
  return kinds;
}

std::vector<std::int64_t> devices_in_nodes(const PlanProblem& problem, const DeviceKind& kind, std::int64_t nodes) {
  std::vector<std::int64_t> chosen;
  for (const auto& [node, devices] : by_node(problem.cluster(), kind.devices)) {
    if (nodes-- == 0) break;
    chosen.insert(chosen.end(), devices.begin(), devices.begin() + kind.per_node);
  }
  return chosen;
}

}  // namespace weft
