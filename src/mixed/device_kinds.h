// The kinds of devices of a job: devices of one type in nodes of one type, which compute and communicate alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "problem/problem.h"

namespace weft {

struct DeviceKind {
  std::string name;                   // "h100-sxm"; with its node's, "h100-sxm in dgx-h100", where two kinds share it
  std::vector<std::int64_t> devices;  // of the cluster, node by node
  std::int64_t per_node = 1;          // the fewest in a node

  std::int64_t count() const { return static_cast<std::int64_t>(devices.size()); }
};

// In the order of the job's devices.
std::vector<DeviceKind> kinds_of(const PlanProblem& problem);

// As many of its nodes, the first ones, with the same number of devices in each: "--devices" of that kind.
std::vector<std::int64_t> devices_in_nodes(const PlanProblem& problem, const DeviceKind& kind, std::int64_t nodes);

}  // namespace weft
