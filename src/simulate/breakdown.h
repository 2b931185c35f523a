// Where the time of a recorded run goes: per agent, and per link.
#pragma once

#include <array>

#include "simulate/recorded.h"

namespace weft {

// Every picosecond from 0 to the makespan is counted once, as the first of these that is true of the agent.
struct Breakdown {
  Picoseconds compute = 0;                               // a computation is under way
  std::array<Picoseconds, kMaxStreams> communication{};  // else a communication is, on this stream (the lowest of them)
  Picoseconds waiting = 0;     // else a task waits for other parties of its meeting: a pipeline bubble, a straggler
  Picoseconds host_bound = 0;  // else tasks remain that the host has not issued
  Picoseconds done = 0;        // else no tasks remain

  Picoseconds total() const;
  bool operator==(const Breakdown&) const = default;
};

// Cost: sorts the agent's executed tasks.
Breakdown break_down(const Recorded& recorded, AgentId agent);

// Carried bytes over capacity × makespan, for each link.
IdVec<FlowLinkId, double> link_utilisation(const Workload& workload, const Run& run);

}  // namespace weft
