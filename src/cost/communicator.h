// The routes of a communication through the links: found once per group of devices, used for every size.
//
// A route is an algorithm on a group: which member sends to which, with what share of the bytes, hence the load of
// every link. Let V be the bytes of a query; the busiest link carries `volume`·V, and every other link its coefficient
// (over kOne) of that. So the links of a simulated communication depend on communicator and route alone; V only scales
// them.
//
//   Ring       one ring per NIC of a node, each with its share of the bytes, entering nodes over different NICs; in a
//              node without a switch, as many link-disjoint rings as its NVLinks or xGMI links hold. All-reduce:
//              volume 2(n−1)/n; reduce-scatter and all-gather half of it
//   Tree       all-reduce up and down two binary trees of nodes, half of the bytes each, in chains inside nodes; in one
//              node only where its direct links hold no ring
//   Nvls       all-reduce in the switch: each member sends its V once and 1/n of the result
//   NvlsTree   the switch inside nodes, two binary trees between them
//   Direct     every sender to every receiver: all-to-all, halos, transfers, block moves, host copies; a shift sends to
//              the next in the ring
//
// Cost: linear in members and path lengths (an all-gather of 2,048 members: a millisecond, an all-reduce with its trees
// a few, once). An all-to-all visits every pair of up to 128 members, and a sample of as many pairs of larger groups.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cluster/cluster.h"
#include "layout/reshard.h"

namespace weft {

enum class Traffic : std::uint8_t { AllReduce, ReduceScatter, AllGather, AllToAll, Halo, Transfer, HostCopy, Shift };
enum class Algorithm : std::uint8_t { Ring, Tree, Nvls, NvlsTree, Direct };
enum class Protocol : std::uint8_t { LL, LL128, Simple };  // NCCL's protocols, from low latency to full bandwidth
std::string_view name_of(Traffic traffic);
std::string_view name_of(Algorithm algorithm);
std::string_view name_of(Protocol protocol);
inline constexpr std::size_t kLinkKinds = static_cast<std::size_t>(LinkKind::kFabric) + 1;
inline constexpr std::size_t kProtocols = 3;

// A link that carries `coefficient`/kOne bytes per byte on the busiest link.
struct LinkShare {
  LinkId link;
  std::int64_t coefficient = 0;

  bool operator==(const LinkShare&) const = default;
};

// A sender, a receiver and the bytes between them per byte of V.
struct Hop {
  std::uint32_t from = 0, to = 0;  // indices into the members
  double bytes = 0;

  bool operator==(const Hop&) const = default;
};

struct Route {
  Algorithm algorithm{};
  double volume = 0;  // bytes on the busiest link per byte of V
  double sent = 0;    // bytes that a member sends per byte of V, on average
  // Above 0: the route uses one lane of this bandwidth of each link. NCCL finds one channel if the links contain a tree
  // but no ring (five V100 of a DGX-1: 23 of 25 GB/s).
  BytesPerSecond lane = {};
  // Messages in sequence, inside nodes and between them, and the links' latency of one message.
  int steps_inside = 0, steps_between = 0;
  Seconds latency_inside = {}, latency_between = {};
  std::vector<LinkShare> links = {};  // by link id
  std::vector<Hop> hops = {};

  // The bottleneck link of each kind; coefficient 0: no link of this kind.
  struct Narrowest {
    BytesPerSecond bandwidth;
    std::int64_t coefficient = 0;
  };
  std::array<Narrowest, kLinkKinds> narrowest = {};
};

struct Communicator {
  Traffic traffic{};
  std::vector<DeviceId> members;  // in mesh order
  int nodes = 0;
  int fewest_per_node = 0, most_per_node = 0;
  const DeviceSpec* device = nullptr;  // of the first member; the cluster owns it
  // Between its nodes, the one with the most collisions if there are several; null in one node. The cluster owns it.
  const NetworkTraits* network = nullptr;
  std::vector<Route> routes;  // none: nothing moves (one member, or a slice)
};

// Members are distinct and in mesh order, the order of rings inside nodes.
Communicator make_communicator(const Cluster& cluster, std::span<const DeviceId> members, Collective collective);
Communicator make_transfer(const Cluster& cluster, DeviceId from, DeviceId to);
// From a device to its host's memory, or back.
Communicator make_host_copy(const Cluster& cluster, DeviceId device, bool to_host);

// Blocks moved together between any devices, priced as one communication of their summed bytes.
struct BlockMove {
  DeviceId from, to;
  std::int64_t bytes = 0;
};
Communicator make_block_moves(const Cluster& cluster, std::span<const BlockMove> moves);

// The links of one member's own sends and receives, with their coefficients in the whole route. If all members of a
// group are equivalent, these links limit the rate as all links do: a folded simulation needs only them.
std::vector<LinkShare> links_of_member(const Cluster& cluster, const Communicator& communicator, const Route& route,
                                       std::uint32_t member);

}  // namespace weft
