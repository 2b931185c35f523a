// The event-time engine: plays a workload and says when everything happens.
//
//   simulate(workload) → Run, in picoseconds; same workload, same bytes.
//
// Rules (workload.h has the words):
//   host      issues an agent's tasks in order: issued = max(previous issue, when run_ahead allows, end of a
//   `host_waits`
//             task) + task.host
//   start     when issued, the stream's previous task has ended and everything in `after` has; a meeting's task then
//             occupies its stream and waits until all parties have come
//   fair      communications share links max-min fairly (fair_shares.h), after their latency; interference counts
//   fifo      a communication holds its links alone for its isolated time, latency included, in order of arrival; who
//             arrive together go by their first agents, and of one agent as it issued them. No interference at all
//             (FlexFlow's assumptions)
//   ties      what happens at the same time is settled together before time goes on
//
// Not here: where durations come from (src/cost), what tasks mean, memory.
// Cost: some tens of nanoseconds per task while an agent only computes; O(log) per event else. Nothing is allocated in
// the loop.
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

// When a task was issued, when it took its stream (a meeting's task may wait there for others), and when it ended.
struct TaskTimes {
  Picoseconds issued = 0;
  Picoseconds start = 0;
  Picoseconds end = 0;

  bool operator==(const TaskTimes&) const = default;
};

struct AgentRun {
  Picoseconds busy = 0;               // with a compute task under way
  Picoseconds host_bound = 0;         // before its end, with nothing on any stream: the host has not issued enough
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

// An error says what is wrong with the workload, or who waits for whom where nothing can go on.
Result<Run> simulate(const Workload& workload, const SimulateOptions& options = {});

}  // namespace weft
