// The discrete-event engine: simulates a workload and gives the time of every event.
//
//   simulate(workload) → Run, in picoseconds; same workload, same bytes.
//
// Rules (terms are defined in workload.h):
//   host      issues an agent's tasks in order: issued = max(previous issue, when run_ahead allows, end of a
//             `host_waits` task) + task.host
//   start     when the task is issued, the stream's previous task has ended and all of `after` have; a meeting's task
//             then occupies its stream and waits until all parties have arrived
//   fair      communications share links max-min fairly (fair_shares.h), after their latency; with interference
//   fifo      a communication holds its links alone for its isolated time, latency included, in order of arrival;
//             simultaneous arrivals are ordered by first agent, then by its issue order. No interference (FlexFlow's
//             assumptions)
//   ties      all events of one time are processed before time advances
//
// Not here: where durations come from (src/cost), what tasks mean, memory.
// Cost: some tens of nanoseconds per task while an agent only computes, else O(log) per event. The loop does not
// allocate. A run that is not recorded does not simulate micro-batches that repeat earlier ones (steady_state.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "simulate/workload.h"

namespace weft {

enum class Network : std::uint8_t { Fair, Fifo };

struct SimulateOptions {
  Network network = Network::Fair;
  bool record = false;  // keep the times of every task: 24 bytes each
};

// When a task was issued, when it occupied its stream (a meeting's task may wait there for other parties), and when it
// ended.
struct TaskTimes {
  Picoseconds issued = 0;
  Picoseconds start = 0;
  Picoseconds end = 0;

  bool operator==(const TaskTimes&) const = default;
};

struct AgentRun {
  Picoseconds busy = 0;               // time with a running compute task
  Picoseconds host_bound = 0;         // time before `end` with all streams empty: waiting for the host
  Picoseconds end = 0;                // of its last task
  std::vector<TaskTimes> tasks = {};  // of every executed task, in issue order; if recorded

  bool operator==(const AgentRun&) const = default;
};

struct Run {
  Picoseconds makespan = 0;
  IdVec<AgentId, AgentRun> agents;
  IdVec<FlowLinkId, std::int64_t> carried;  // bytes, rounded down
  std::int64_t tasks = 0;                   // executed
  std::int64_t events = 0;                  // tasks begun and phases of communications ended

  bool operator==(const Run&) const = default;
};

// The error names the fault of the workload or, in a deadlock, what each agent waits for.
Result<Run> simulate(const Workload& workload, const SimulateOptions& options = {});

}  // namespace weft
