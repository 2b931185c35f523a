// The network between nodes. A FabricSpec describes its shape; a Fabric is the spec bound to the nodes of one cluster.
//
// Nothing is stored per node: the links of a path and the capacity of a link follow from arithmetic on node
// numbers, so a fabric of 100,000 nodes costs as little as one of ten.
//
// TreeFabric covers three of the usual shapes. A level groups `nodes` consecutive nodes under one switch,
// whose links to the level above are one fat link each way, of the capacity of all NICs below divided by the
// oversubscription:
//   single switch    no levels: every NIC at its own rate into an ideal crossbar
//   fat tree         levels = leaf, pod, ...; above the last level an ideal core
//   rail-optimised   `rails`: each level has one switch per rail; NIC r of a node is on rail r. Rails are joined
//                    only above the last level (the spine); Cluster::append_path avoids it by changing rails
//                    inside the node first.
// DragonflyFabric: routers of a group are joined all to all by local links, groups all to all by one global
// link per pair; routes are minimal (local, global, local).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/units.h"
#include "cluster/device.h"

namespace weft {

using LinkId = Id<struct LinkTag>;

struct TreeFabric {
  struct Level {
    std::int64_t nodes = 1;       // nodes below one switch of this level
    double oversubscription = 1;  // capacity towards the nodes over capacity upwards
    bool operator==(const Level&) const = default;
  };
  bool rails = false;
  std::vector<Level> levels;  // lowest first
  Figure<Seconds> latency;    // of one switch and cable
  // Whether a sender changes rails inside its node (NCCL's PXN, from 2.12); otherwise above the last level.
  bool relays = true;
  bool operator==(const TreeFabric&) const = default;
};

struct DragonflyFabric {
  std::int64_t nodes_per_router = 1;
  std::int64_t routers_per_group = 1;
  Figure<BytesPerSecond> local;   // between two routers of a group, per direction
  Figure<BytesPerSecond> global;  // between two groups, per direction
  Figure<Seconds> latency;        // of one router and cable
  bool operator==(const DragonflyFabric&) const = default;
};

using FabricSpec = std::variant<TreeFabric, DragonflyFabric>;

// "single switch", "fat tree", "rail-optimised" or "dragonfly".
std::string fabric_name(const FabricSpec& spec);
// The field at fault, or Ok: positive sizes, each level larger than the one below, finite factors of at least
// 1e-3.
Status check(const FabricSpec& spec);

// `nodes` consecutive nodes whose NICs have these rates per direction, rail by rail.
struct NodeRun {
  std::int64_t nodes = 0;
  std::vector<BytesPerSecond> nic_rates;
};

class Fabric {
 public:
  struct Capacity {
    BytesPerSecond bandwidth;
    Seconds latency;
    bool ample = false;  // as wide as all NICs below it together: never a bottleneck
  };
  // One level of the fabric, for reports: `links` directed links with the same role.
  struct Tier {
    std::string name;
    std::int64_t links = 0;
    BytesPerSecond slowest, fastest, total;
  };

  Fabric() = default;
  // `spec` has passed check().
  Fabric(FabricSpec spec, std::vector<NodeRun> runs);

  const FabricSpec& spec() const { return spec_; }
  std::int64_t link_count() const { return link_count_; }
  // Directed link `offset` of this fabric. Cost: logarithmic in levels and runs.
  Capacity link(std::int64_t offset) const;
  // Appends the fabric's own links from NIC `rail_a` of `node_a` to NIC `rail_b` of `node_b`; ids start at
  // `first`.
  void append_path(std::int64_t node_a, int rail_a, std::int64_t node_b, int rail_b, LinkId first,
                   std::vector<LinkId>& out) const;
  // The same link in the opposite direction.
  std::int64_t reverse(std::int64_t offset) const;

  std::vector<Tier> tiers() const;
  // Least capacity, per direction, between two halves of the nodes cut along switch borders.
  BytesPerSecond bisection() const;

 private:
  struct TreeLevel {        // one level of a tree
    std::int64_t nodes;     // below one switch
    std::int64_t switches;  // per rail
    double oversubscription;
    std::int64_t first_link;
  };
  const DragonflyFabric* dragonfly() const { return std::get_if<DragonflyFabric>(&spec_); }
  double rate_below(std::int64_t first_node, std::int64_t last_node, int rail) const;
  std::int64_t router_link(std::int64_t group, std::int64_t from, std::int64_t to) const;

  FabricSpec spec_;
  std::vector<NodeRun> runs_;
  std::int64_t nodes_ = 0;
  int planes_ = 1;  // switches per level and position: one per rail; 1 without rails
  std::int64_t link_count_ = 0;
  std::vector<TreeLevel> levels_;
  std::int64_t groups_ = 0;  // dragonfly
};

}  // namespace weft
