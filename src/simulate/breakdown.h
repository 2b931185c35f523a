// Where the time of a recorded run goes: per agent, and per link.
#pragma once

#include <array>

#include "simulate/recorded.h"

namespace weft {

// Every picosecond from 0 to the makespan is counted once, as the first of these that is true of the agent.
struct Breakdown {
  Picoseconds compute = 0;                               // a computation is under way
  std::array<Picoseconds, kMaxStreams> communication{};  // else a communication is, on this stream (the lowest of them)
  Picoseconds waiting = 0;     // else a task waits in a meeting for others: a pipeline's bubble, a straggler
  Picoseconds host_bound = 0;  // else the agent has tasks to come: the host has not issued them
  Picoseconds done = 0;        // else it has none

  Picoseconds total() const;
  bool operator==(const Breakdown&) const = default;
};

// Cost: sorts the agent's executed tasks.
Breakdown break_down(const Recorded& recorded, AgentId agent);

// The share of its capacity that each link carries over the makespan.
IdVec<FlowLinkId, double> link_utilisation(const Workload& workload, const Run& run);

}  // namespace weft
