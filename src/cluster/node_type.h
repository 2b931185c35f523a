// A kind of node: a small graph of devices, switches, sockets and NICs, with the routes between them.
//
// A wire is duplex and becomes two directed links, 2·wire (from → to) and 2·wire + 1 (back), each with the
// bandwidth of one direction. The wire of a NIC towards the fabric ends at kNetwork.
//
// Routes are found once per node type, by fewest hops, then widest bottleneck, then lowest ids; routes are
// symmetric. Devices and NICs do not forward unless there is no other route: two V100 of a DGX-1 without an
// NVLink between them communicate over PCIe and the sockets, as peer-to-peer copies do. `devices_forward`
// allows forwarding (xGMI routes through GPUs).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/device.h"
#include "cluster/fabric.h"
#include "cluster/network.h"

namespace weft {

enum class VertexKind { kDevice, kSwitch, kPcieSwitch, kSocket, kNic };
enum class LinkKind { kNvlink, kNvswitch, kXgmi, kC2c, kMemory, kPcie, kSocket, kNic, kFabric };

std::string_view name(VertexKind kind);  // "device", "switch", "pcie-switch", "socket", "nic"
std::string_view name(
    LinkKind kind);  // "nvlink", "nvswitch", "xgmi", "c2c", "memory", "pcie", "socket", "nic", "fabric"
// Made for traffic between devices: NVLink, NVSwitch ports, xGMI.
constexpr bool is_scale_up(LinkKind kind) {
  return kind == LinkKind::kNvlink || kind == LinkKind::kNvswitch || kind == LinkKind::kXgmi;
}

struct LinkType {
  std::string name;
  LinkKind kind = LinkKind::kPcie;
  Figure<BytesPerSecond> bandwidth;  // per direction
  Figure<Seconds> latency;           // per crossing
  NetworkTraits network;             // of a NIC: what is behind it
  bool operator==(const LinkType&) const = default;
};

struct Vertex {
  std::string name;
  VertexKind kind = VertexKind::kDevice;
  int spec = -1;  // index into NodeParts::specs if a device
  bool operator==(const Vertex&) const = default;
};

struct Wire {
  int from = 0, to = 0;
  int type = 0;   // index into NodeParts::link_types
  int count = 1;  // parallel lanes, whose bandwidths add up
  bool operator==(const Wire&) const = default;
};

// The parts of a node type, as read from a file; NodeType::make checks them.
struct NodeParts {
  static constexpr int kNetwork = -1;

  std::string name, title;
  std::string source;  // where the structure of the node is documented
  std::vector<std::shared_ptr<const DeviceSpec>> specs;
  std::vector<LinkType> link_types;
  std::vector<Vertex> vertices;
  std::vector<Wire> wires;
  bool devices_forward = false;
  Figure<double> host = {1, {}};  // the time its host takes to issue work, relative to a usual one
  FabricSpec fabric;              // the default fabric between such nodes
};
bool operator==(const NodeParts& a, const NodeParts& b);

class NodeType {
 public:
  // Limits that no real node reaches; they bound the cost of a hostile file.
  static constexpr std::size_t kMostVertices = 512, kMostWires = 8192;

  // Checks the parts (names unique, no self loop, connected, one network wire per NIC, a device at least) and
  // finds the routes.
  static Result<NodeType> make(NodeParts parts);

  const NodeParts& parts() const { return parts_; }
  const std::string& name() const { return parts_.name; }

  int device_count() const { return static_cast<int>(devices_.size()); }
  int nic_count() const { return static_cast<int>(nics_.size()); }
  int link_count() const { return static_cast<int>(2 * parts_.wires.size()); }
  std::span<const int> device_vertices() const { return devices_; }
  std::span<const int> nic_vertices() const { return nics_; }
  const DeviceSpec& spec(int device) const { return *parts_.specs[parts_.vertices[devices_[device]].spec]; }

  struct Link {
    int from, to;  // vertices; NodeParts::kNetwork outside
    LinkKind kind;
    BytesPerSecond bandwidth;
    Seconds latency;
  };
  Link link(int link) const;
  // The directed link from NIC `nic` into the fabric.
  int uplink(int nic) const { return uplinks_[nic]; }

  int nic_of(int device) const { return nic_of_[device]; }        // the NIC (rail) it uses; -1 without NICs
  int socket_of(int device) const { return socket_of_[device]; }  // vertex of its host; -1 without sockets
  // The device whose NIC is `nic`, and that `device` reaches over scale-up links only; -1 if none.
  int relay(int device, int nic) const { return relay_[device * nic_count() + nic]; }

  // Appends the links from vertex `from` to vertex `to`, ids counted from `first`. Cost: the length of the
  // route.
  void append_route(int from, int to, LinkId first, std::vector<LinkId>& out) const;

  // Sum of a device's scale-up links per direction; its widest link if it has none.
  BytesPerSecond injection_bandwidth(int device) const;
  BytesPerSecond network_bandwidth() const;  // of all NICs, per direction
  // The network behind its first NIC; null without NICs.
  const NetworkTraits* network() const;

  bool operator==(const NodeType& other) const { return parts_ == other.parts_; }

 private:
  void find_routes();
  void route_towards(int target, bool all_forward, std::vector<int>& hops, std::vector<double>& width,
                     std::vector<int>& next) const;
  void choose_nics_and_sockets();
  int nearest_of(int vertex, std::span<const int> candidates, std::vector<int>* all_nearest = nullptr) const;

  NodeParts parts_;
  std::vector<int> devices_, nics_, sockets_;  // vertices by kind
  std::vector<int> uplinks_, nic_of_, socket_of_, relay_;
  std::vector<std::vector<int>> incident_;  // wires at each vertex
  std::vector<std::uint16_t> next_;         // next_[at · vertices + target]: directed link to take
};

}  // namespace weft
