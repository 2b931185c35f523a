// Where training runs: devices, the links between them, and the route from any device to any other.
//
// Start here. Given a spec such as `dgx-h100:16`, `dgx1-v100:2+p100x8:6`, `rack.yaml`, `topology.xml:4` or `topo.txt:4,device=h100-sxm`,
// parse_cluster gives a Cluster: a frozen value, cheap to copy, safe to share between threads.
//
// Devices, nodes and links are numbered without gaps: groups in the order of the spec, nodes in order,
// devices in order. Each link has one direction. The links of nodes and of the fabric are computed from their
// numbers, not stored: a cluster of 16,384 devices takes the memory of its few node types, and a path costs
// its length.
//
// Not here: how long a collective takes (src/cost), how flows share a link (src/simulate).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_id.h"
#include "base/result.h"
#include "cluster/device.h"
#include "cluster/fabric.h"
#include "cluster/node_type.h"

namespace weft {

using NodeId = Id<struct NodeTag>;

struct NodeGroup {
  std::shared_ptr<const NodeType> type;
  std::int64_t nodes = 1;
};

// A directed link with the bandwidth of its direction.
struct Link {
  LinkKind kind = LinkKind::kFabric;
  BytesPerSecond bandwidth;
  Seconds latency;
  bool ample = false;  // a fabric link as wide as all NICs below it together: never a bottleneck
};

class Cluster {
 public:
  static constexpr std::int64_t kMostDevices = 1 << 24;
  static constexpr std::size_t kMostGroups = 256;

  // Checks that the groups can be joined (NICs, sizes, one meaning per name) and numbers everything. The
  // groups' types are shared, not copied.
  static Result<Cluster> make(std::vector<NodeGroup> groups, FabricSpec fabric);

  std::int64_t device_count() const { return devices_; }
  std::int64_t node_count() const { return nodes_; }
  std::int64_t link_count() const { return fabric_links_ + fabric_.link_count(); }
  IdRange<DeviceId> devices() const { return IdRange<DeviceId>(static_cast<std::size_t>(devices_)); }
  const std::vector<NodeGroup>& groups() const { return groups_; }
  const Fabric& fabric() const { return fabric_; }
  bool homogeneous() const { return groups_.size() == 1 && groups_[0].type->parts().specs.size() == 1; }

  // All below: linear in the number of groups (one or a few), no allocation.
  const DeviceSpec& spec(DeviceId device) const;
  NodeId node_of(DeviceId device) const;
  int index_in_node(DeviceId device) const;
  const NodeType& type_of(NodeId node) const;
  // The time that the host of a device takes to issue work, relative to a usual one.
  double host_of(DeviceId device) const;
  IdRange<DeviceId> devices_of(NodeId node) const;
  Link link(LinkId link) const;
  LinkId reverse(LinkId link) const;
  // The NIC of its node that a device uses, counted from 0: its rail. −1 if the node has none.
  int rail_of(DeviceId device) const;
  // "node3.gpu0 > nvswitch": for messages and reports.
  std::string link_name(LinkId link) const;

  // Appends the links from a to b in order; none if a = b. Cost: the length of the path.
  // Between nodes: a's route to its NIC, the fabric, b's NIC to b. On a rail-optimised fabric a first moves
  // over scale-up links to the device on b's rail, if there is one (NCCL's PXN), so that the path avoids the
  // spine.
  void append_path(DeviceId a, DeviceId b, std::vector<LinkId>& out) const;
  std::vector<LinkId> path(DeviceId a, DeviceId b) const;
  // Appends the links from a device to its host's memory; `reverse` of each gives the opposite direction.
  // Appends nothing if the node has no sockets.
  void append_host_path(DeviceId device, std::vector<LinkId>& out) const;

  // Same groups and fabric, hence the same devices, links and paths.
  bool operator==(const Cluster& other) const;

 private:
  struct Run {  // the consecutive numbers of one group
    std::int64_t first_node = 0, first_device = 0, first_link = 0;
  };
  std::size_t group_of_node(NodeId node) const;
  std::size_t group_of_device(DeviceId device) const;
  struct Place {
    const NodeType* type;
    std::int64_t node;
    int index;          // of the device in its node
    LinkId first_link;  // of its node
  };
  Place place(DeviceId device) const;

  std::vector<NodeGroup> groups_;
  std::vector<Run> runs_;
  Fabric fabric_;
  std::int64_t devices_ = 0, nodes_ = 0, fabric_links_ = 0;
};

// A preset spec (groups joined by `+`, each NAME[:COUNT][,option=value...]) or the path of a .yaml, .yml or
// .xml file, which may also stand for a group when it describes one node type. Options:
//   net=800Gbps (per node, over all NICs)  nic=100Gbps (each NIC)  device=NAME (other devices in the same
//   places)  host=2 (times as slow to issue work)  network=roce (behind the NICs)  fabric=switch|fat-tree|rail|dragonfly
//   leaf=16 (nodes)  oversubscription=4
Result<Cluster> parse_cluster(std::string_view spec);

// `count` devices in order, evenly over the nodes and the first of each node; if `count` does not divide, the first
// nodes have one more. An error if there are fewer than nodes or more than devices.
Result<std::vector<DeviceId>> devices_evenly(const Cluster& cluster, std::int64_t count);

// A cluster from YAML text; `name` is the file name in error messages. Never reads another file.
Result<Cluster> parse_cluster_yaml(std::string_view text, std::string_view name);
// A node type from an NCCL_TOPO_DUMP_FILE dump (also RCCL's). The device is the one `device` names, else what
// of the PCI id, else the usual one of the compute capability (`sm`, `gcn`).
Result<NodeType> parse_nccl_topology(std::string_view text, std::string_view name, std::string_view device = {});
// A node type from what `nvidia-smi topo -m` prints. `device` is required: the matrix does not say it; bandwidths are those
// of preset nodes with that device.
Result<NodeType> parse_smi_topology(std::string_view text, std::string_view name, std::string_view device);

// Every preset node, without aliases, sorted.
std::vector<std::string> cluster_preset_names();
std::vector<std::string> device_preset_names();

// A file that parses back to an equal cluster.
std::string to_yaml(const Cluster& cluster);

}  // namespace weft
