#include "cluster/node_type.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace weft {

std::string_view name(VertexKind kind) {
  constexpr std::string_view names[] = {"device", "switch", "pcie-switch", "socket", "nic"};
  return names[static_cast<std::size_t>(kind)];
}
std::string_view name(LinkKind kind) {
  constexpr std::string_view names[] = {"nvlink", "nvswitch", "xgmi", "c2c",   "memory",
                                        "pcie",   "socket",   "nic",  "fabric"};
  return names[static_cast<std::size_t>(kind)];
}

bool operator==(const NodeParts& a, const NodeParts& b) {
  return a.name == b.name && a.title == b.title && a.source == b.source && a.link_types == b.link_types &&
         a.vertices == b.vertices && a.wires == b.wires && a.devices_forward == b.devices_forward && a.host == b.host &&
         a.fabric == b.fabric &&
         std::equal(a.specs.begin(), a.specs.end(), b.specs.begin(), b.specs.end(),
                    [](const auto& x, const auto& y) { return *x == *y; });
}

namespace {

// Link types and device specs in the order of their first use, unused ones dropped: equal nodes have equal
// parts.
void normalise(NodeParts& parts) {
  std::vector<int> place(parts.link_types.size(), -1);
  std::vector<LinkType> link_types;
  for (Wire& wire : parts.wires) {
    if (place[wire.type] < 0) {
      place[wire.type] = static_cast<int>(link_types.size());
      link_types.push_back(parts.link_types[wire.type]);
    }
    wire.type = place[wire.type];
  }
  parts.link_types = std::move(link_types);
  place.assign(parts.specs.size(), -1);
  std::vector<std::shared_ptr<const DeviceSpec>> specs;
  for (Vertex& vertex : parts.vertices) {
    if (vertex.kind != VertexKind::kDevice) continue;
    if (place[vertex.spec] < 0) {
      place[vertex.spec] = static_cast<int>(specs.size());
      specs.push_back(parts.specs[vertex.spec]);
    }
    vertex.spec = place[vertex.spec];
  }
  parts.specs = std::move(specs);
}

}  // namespace

Result<NodeType> NodeType::make(NodeParts parts) {
  if (parts.vertices.size() > kMostVertices)
    return error("{} vertices: a node has at most {}", parts.vertices.size(), kMostVertices);
  if (parts.wires.size() > kMostWires) return error("{} wires: a node has at most {}", parts.wires.size(), kMostWires);
  normalise(parts);
  NodeType type;
  std::set<std::string_view> names;
  for (std::size_t v = 0; v < parts.vertices.size(); ++v) {
    const Vertex& vertex = parts.vertices[v];
    if (!names.insert(vertex.name).second)
      return error("vertex '{}': named twice; give each vertex its own name", vertex.name);
    const int id = static_cast<int>(v);
    if (vertex.kind == VertexKind::kDevice) type.devices_.push_back(id);
    if (vertex.kind == VertexKind::kNic) type.nics_.push_back(id);
    if (vertex.kind == VertexKind::kSocket) type.sockets_.push_back(id);
  }
  if (type.devices_.empty()) return error("no device among the vertices; add one, such as gpu0..7: h100-sxm");

  type.incident_.resize(parts.vertices.size());
  std::vector<int> uplink_of(parts.vertices.size(), -1);
  for (std::size_t w = 0; w < parts.wires.size(); ++w) {
    const Wire& wire = parts.wires[w];
    const std::string& from = parts.vertices[wire.from].name;
    const LinkType& link_type = parts.link_types[wire.type];
    if (wire.count < 1) return error("wire at '{}': count {}; at least 1", from, wire.count);
    const double bandwidth = link_type.bandwidth.value.value * wire.count;
    if (!(bandwidth > 0) || !std::isfinite(bandwidth))
      return error("wire at '{}': bandwidth of '{}' must be finite and more than zero", from, link_type.name);
    if (wire.to == NodeParts::kNetwork) {
      if (parts.vertices[wire.from].kind != VertexKind::kNic)
        return error("'{}' to network: only a nic is wired to the network", from);
      if (uplink_of[wire.from] >= 0)
        return error("'{}': wired to the network twice; raise the wire's count instead", from);
      uplink_of[wire.from] = static_cast<int>(2 * w);
      continue;
    }
    if (wire.from == wire.to) return error("'{}': wired to itself", from);
    type.incident_[wire.from].push_back(static_cast<int>(w));
    type.incident_[wire.to].push_back(static_cast<int>(w));
  }
  for (int nic : type.nics_) {
    if (uplink_of[nic] < 0)
      return error("'{0}': not wired to the network; add a wire such as [{0}, network, TYPE]",
                   parts.vertices[nic].name);
    type.uplinks_.push_back(uplink_of[nic]);
  }
  type.parts_ = std::move(parts);

  // Everything must be reachable from everything.
  std::vector<bool> seen(type.parts_.vertices.size(), false);
  std::vector<int> stack = {0};
  seen[0] = true;
  while (!stack.empty()) {
    const int at = stack.back();
    stack.pop_back();
    for (int w : type.incident_[at]) {
      const int other = type.parts_.wires[w].from + type.parts_.wires[w].to - at;
      if (!seen[other]) {
        seen[other] = true;
        stack.push_back(other);
      }
    }
  }
  for (std::size_t v = 0; v < seen.size(); ++v)
    if (!seen[v])
      return error("'{}': no wire leads from it to '{}'; connect every vertex", type.parts_.vertices[v].name,
                   type.parts_.vertices[0].name);
  type.find_routes();
  type.choose_nics_and_sockets();
  return type;
}

NodeType::Link NodeType::link(int link) const {
  const Wire& wire = parts_.wires[static_cast<std::size_t>(link / 2)];
  const LinkType& type = parts_.link_types[wire.type];
  const bool forward = link % 2 == 0;
  return {forward ? wire.from : wire.to, forward ? wire.to : wire.from, type.kind, type.bandwidth.value * wire.count,
          type.latency.value};
}

// Breadth first from `target` backwards. Within a layer the widest bottleneck wins: the widest path of k hops
// extends a widest path of k − 1 hops, so one sweep per layer is exact. Ties go to the lowest vertex, then
// the lowest wire.
void NodeType::route_towards(int target, bool all_forward, std::vector<int>& hops, std::vector<double>& width,
                             std::vector<int>& next) const {
  const auto vertices = parts_.vertices.size();
  hops.assign(vertices, -1);
  width.assign(vertices, 0);
  next.assign(vertices, -1);
  hops[target] = 0;
  width[target] = std::numeric_limits<double>::infinity();
  std::vector<int> layer = {target}, above;
  for (int depth = 1; !layer.empty(); ++depth) {
    above.clear();
    for (int at : layer) {
      const VertexKind kind = parts_.vertices[at].kind;
      const bool leaf = kind == VertexKind::kNic || (kind == VertexKind::kDevice && !parts_.devices_forward);
      if (at != target && leaf && !all_forward) continue;
      for (int w : incident_[at]) {
        const Wire& wire = parts_.wires[w];
        const int other = wire.from + wire.to - at;
        if (hops[other] >= 0 && hops[other] < depth) continue;
        const double bottleneck = std::min(width[at], parts_.link_types[wire.type].bandwidth.value.value * wire.count);
        if (hops[other] < 0) above.push_back(other);
        if (hops[other] < 0 || bottleneck > width[other]) {
          hops[other] = depth;
          width[other] = bottleneck;
          next[other] = 2 * w + (wire.from == other ? 0 : 1);
        }
      }
    }
    std::sort(above.begin(), above.end());
    layer.swap(above);
  }
}

void NodeType::find_routes() {
  const int vertices = static_cast<int>(parts_.vertices.size());
  next_.assign(static_cast<std::size_t>(vertices) * vertices, 0);
  std::vector<int> hops, next, last_resort;
  std::vector<double> width;
  for (int target = 0; target < vertices; ++target) {
    route_towards(target, false, hops, width, next);
    if (std::count(next.begin(), next.end(), -1) > 1) {  // besides the target itself
      route_towards(target, true, hops, width, last_resort);
      // A vertex that must go through a device joins that device's own route, so every route ends at the target.
      for (int v = 0; v < vertices; ++v)
        if (next[v] < 0) next[v] = last_resort[v];
    }
    for (int v = 0; v < vertices; ++v)
      if (v != target) next_[static_cast<std::size_t>(v) * vertices + target] = static_cast<std::uint16_t>(next[v]);
  }
}

void NodeType::append_route(int from, int to, LinkId first, std::vector<LinkId>& out) const {
  const std::size_t vertices = parts_.vertices.size();
  const std::size_t start = out.size();
  const bool back = from > to;  // routes are symmetric
  int at = back ? to : from;
  const int target = back ? from : to;
  while (at != target) {
    const int link = next_[static_cast<std::size_t>(at) * vertices + target];
    const Wire& wire = parts_.wires[static_cast<std::size_t>(link / 2)];
    at = link % 2 == 0 ? wire.to : wire.from;
    out.push_back(LinkId(first.index() + static_cast<std::size_t>(back ? link ^ 1 : link)));
  }
  if (back) std::reverse(out.begin() + static_cast<std::ptrdiff_t>(start), out.end());
}

int NodeType::nearest_of(int vertex, std::span<const int> candidates, std::vector<int>* all_nearest) const {
  int best = -1;
  std::size_t best_hops = 0;
  double best_width = 0;
  std::vector<LinkId> route;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    route.clear();
    append_route(vertex, candidates[c], LinkId(0), route);
    double width = std::numeric_limits<double>::infinity();
    for (LinkId id : route) width = std::min(width, link(static_cast<int>(id.index())).bandwidth.value);
    const bool better = best < 0 || route.size() < best_hops || (route.size() == best_hops && width > best_width);
    const bool equal = best >= 0 && route.size() == best_hops && width == best_width;
    if (better) {
      best = static_cast<int>(c);
      best_hops = route.size();
      best_width = width;
      if (all_nearest) all_nearest->clear();
    }
    if (all_nearest && (better || equal)) all_nearest->push_back(static_cast<int>(c));
  }
  return best;
}

void NodeType::choose_nics_and_sockets() {
  // Devices with the same nearest NICs take turns: two GPUs and two NICs below one PCIe switch pair up.
  std::vector<std::vector<int>> nearest(devices_.size());
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    const int socket = nearest_of(devices_[d], sockets_);
    socket_of_.push_back(socket < 0 ? -1 : sockets_[socket]);
    nearest_of(devices_[d], nics_, &nearest[d]);
    const auto turn = std::count(nearest.begin(), nearest.begin() + static_cast<std::ptrdiff_t>(d), nearest[d]);
    nic_of_.push_back(nearest[d].empty() ? -1 : nearest[d][static_cast<std::size_t>(turn) % nearest[d].size()]);
  }
  // The relay towards a rail is the device with the fewest hops to it and on to its NIC; the lowest of
  // equals.
  relay_.assign(devices_.size() * nics_.size(), -1);
  std::vector<std::size_t> hops(relay_.size(), 0);
  std::vector<LinkId> route;
  for (std::size_t d = 0; d < devices_.size() && !nics_.empty(); ++d)
    for (std::size_t other = 0; other < devices_.size(); ++other) {
      const auto nic = static_cast<std::size_t>(nic_of_[other]);
      route.clear();
      append_route(devices_[d], devices_[other], LinkId(0), route);
      if (!std::all_of(route.begin(), route.end(),
                       [&](LinkId id) { return is_scale_up(link(static_cast<int>(id.index())).kind); }))
        continue;
      append_route(devices_[other], nics_[nic], LinkId(0), route);
      const std::size_t at = d * nics_.size() + nic;
      if (relay_[at] >= 0 && hops[at] <= route.size()) continue;
      relay_[at] = static_cast<int>(other);
      hops[at] = route.size();
    }
}

BytesPerSecond NodeType::injection_bandwidth(int device) const {
  BytesPerSecond sum, widest;
  for (int w : incident_[devices_[device]]) {
    const Link one = link(2 * w);
    widest = std::max(widest, one.bandwidth);
    if (is_scale_up(one.kind)) sum += one.bandwidth;
  }
  return sum.value > 0 ? sum : widest;
}

const NetworkTraits* NodeType::network() const {
  return nics_.empty() ? nullptr : &parts_.link_types[parts_.wires[uplinks_[0] / 2].type].network;
}

BytesPerSecond NodeType::network_bandwidth() const {
  BytesPerSecond sum;
  for (int up : uplinks_) sum += link(up).bandwidth;
  return sum;
}

}  // namespace weft
