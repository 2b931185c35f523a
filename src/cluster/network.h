// What a network between nodes loses at scale, beyond the rates and latencies of its links.
//
//   collisions   flows of many nodes are hashed over equal paths, and a collective goes by its slowest flow: the
//                busiest path carries 1 + collisions · log2(nodes) times its share. 0: packets are spread over all paths
//                (adaptive routing)
//   message      time of a NIC for one message beyond its bytes: what a ring of many members, which sends many small
//                ones, loses
//   jitter       standard deviation of the time at which a member comes to a communication: the last of n is expected
//                √(2 ln n) of them late
//   step_jitter  relative standard deviation of the time that devices compute in a step; a step goes by the slowest
//                of all. Constants of devices come from single nodes, so that only what the slowest of a cluster takes
//                beyond the slowest of a node is added
//
// Nothing is lost inside a node. Not here: oversubscribed switches, which are links of the fabric (fabric.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"
#include "cluster/device.h"

namespace weft {

struct NetworkTraits {
  std::string name;  // "efa"; empty: none is named, and nothing is lost
  Figure<double> collisions;
  Figure<Seconds> message;
  Figure<Seconds> jitter;
  Figure<double> step_jitter;
  bool operator==(const NetworkTraits&) const = default;

  bool loses_nothing() const {
    return collisions.value == 0 && message.value.value == 0 && jitter.value.value == 0 && step_jitter.value == 0;
  }
  // How many times its share the busiest path carries. Monotone in nodes; 1 for one node.
  double crowding(int nodes) const;
  // How late the last of `members` is expected to be. Monotone in members; 0 for one.
  Seconds wait_for_last(int members) const;
  // How many times longer the slowest of the cluster's devices computes than the slowest of a node's.
  double slowdown(std::int64_t devices, std::int64_t devices_of_node) const;
};

// "efa: collisions 0.06 per doubling of nodes, 20 us a message, jitter 50 us and 1 % of steps".
std::string describe(const NetworkTraits& network);

}  // namespace weft
