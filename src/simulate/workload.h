// The input of the engine: agents, their tasks on streams, and links. It is independent of graphs, programs and cost
// models; src/price makes a workload from a program.
//
// An *agent* is a device, or represents a class of devices that do the same at the same time (src/price folds them; the
// engine does not know). An agent issues its plays in order; a *play* is a body (a list of tasks) for one micro-batch.
// Tasks go to the agent's streams in issue order; a stream executes one task at a time, in order.
//
// All numbers are integers, so the same workload gives the same bytes on every machine, and a run shifted in time is
// the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "base/short_vec.h"

namespace weft {

using Picoseconds = std::int64_t;
constexpr double seconds_of(Picoseconds time) { return static_cast<double>(time) * 1e-12; }
using AgentId = Id<struct AgentTag>;
using TaskId = Id<struct TaskTag>;  // of one agent's tasks; stable under edits
using WorkId = Id<struct WorkTag>;
using MeetingId = Id<struct MeetingTag>;
using FlowLinkId = Id<struct FlowLinkTag>;
using BodyId = Id<struct BodyTag>;  // of one agent's bodies

// Shares of a device and coefficients on links are fixed-point numbers of this unit.
inline constexpr std::int64_t kOne = 1 << 16;

// The load of a communication on a link: coefficient/kOne bytes for every byte of the communication's progress. The
// largest coefficient of a communication of one device is kOne; an agent that represents k devices which load the same
// link has k times that.
struct LinkUse {
  FlowLinkId link;
  std::int64_t coefficient = kOne;

  bool operator==(const LinkUse&) const = default;
};

// The resources that a task needs, when alone.
//   compute          `fixed` picoseconds
//   communication    `fixed` picoseconds of latency, then `bytes` at a rate r (bytes per second, integer), the max-min
//                    fair share: Σ coefficient·r ≤ capacity on every link, r ≤ cap
// The work of a meeting is a communication; other work is one if it has bytes or links.
struct Work {
  Picoseconds fixed = 0;
  std::int64_t bytes = 0;
  std::int64_t cap = 0;             // bytes per second; 0: none
  std::vector<LinkUse> links = {};  // each link once
  // The links' rate in bytes per second for a single communication, if the coefficients are those of several concurrent
  // ones (an agent that represents devices which share a link); 0: the rate that follows from the coefficients.
  std::int64_t alone = 0;
  std::int32_t sm_share = 0;      // share of the agent's compute units while active, in units of 1/kOne
  std::int32_t memory_share = 0;  // share of the agent's memory bandwidth
  std::int32_t waves =
      0;  // of a computation in equal blocks, one on each unit at a time: in 1/256; 0: it spreads evenly

  bool operator==(const Work&) const = default;
};

// A rendezvous: tasks of several agents that are one communication, a collective or the two sides of a transfer. Its
// work starts when all `parties` have arrived and ends for all at the same time. The n-th occurrence of one party
// matches the n-th of the others.
struct Meeting {
  WorkId work = {};
  std::int32_t parties = 2;

  bool operator==(const Meeting&) const = default;
};

// First and last: of the micro-batches for which the agent plays the body.
enum class PlayedFor : std::uint8_t {
  EveryMicroBatch,
  FirstMicroBatch,
  LastMicroBatch,
  AllButLastMicroBatch,
  AfterFirst,  // every one, but in the first it takes no time, nor does its issue; not for meetings
};
inline constexpr std::size_t kPlayedFor = 5;
constexpr bool is_played(PlayedFor when, bool first, bool last) {
  switch (when) {
    case PlayedFor::EveryMicroBatch:
    case PlayedFor::AfterFirst:
      return true;
    case PlayedFor::FirstMicroBatch:
      return first;
    case PlayedFor::LastMicroBatch:
      return last;
    case PlayedFor::AllButLastMicroBatch:
      return !last;
  }
  return false;
}

inline constexpr int kMaxStreams = 16;
using StreamMask = std::uint16_t;  // one bit per stream

struct Task {
  // At most one of the two is valid: work of the agent alone (a computation, or a communication that waits for no other
  // agent), or a meeting. Neither: the task takes no time (a marker).
  WorkId work = {};
  MeetingId meeting = {};
  std::uint8_t stream = 0;
  PlayedFor when = PlayedFor::EveryMicroBatch;
  bool host_waits = false;  // the host issues nothing more until this task is complete (reading the loss)
  Picoseconds host = 0;     // time the host needs to issue it
  std::uint32_t label = 0;  // free for the maker of the workload
  // Tasks of the same agent, earlier in the play or in an earlier play of the micro-batch: waits for the last issue of
  // each. One that was not issued (its guard, or no such play) counts as complete.
  ShortVec<TaskId> after = {};

  bool operator==(const Task&) const = default;
};

struct Play {
  BodyId body;
  std::int32_t micro_batch = 0;

  bool operator==(const Play&) const = default;
};

// How concurrent communication and computation on a device slow each other. It depends on what is active, never on its
// rate. Let s, m be the summed shares of active communications, S, M those of active computation (at most 1:
// computations do not slow one another). A communication is active from its start, its latency included.
//   units left       f = 1 − compute_per_sm·s, less wave_loss for computation in more than one wave
//   computation at   u / (1 + memory_weight·M·m), where u = min(1, f / S); in w waves it is steps(w) / steps(w / f),
//                    steps(w) = w + wave_weight·(⌈w⌉ − w): blocks that no longer fit in a wave begin another
//   communication's caps shrink by  1 / (max(1, m) + communication_weight·M)
// each factor in units of 1/kOne, never below 1/64. (Caps include the link-limited rate it would have alone.) A
// communication of several agents has the smallest of their factors.
struct Interference {
  std::int64_t compute_per_sm = kOne;
  std::int64_t memory_weight = kOne;
  std::int64_t communication_weight = kOne;
  std::int64_t wave_loss = 0;
  std::int64_t wave_weight = kOne;

  bool operator==(const Interference&) const = default;
};

// Summed shares of what is active on a device; those of computation are at most kOne.
struct DeviceLoad {
  std::int64_t sm = 0, memory = 0;
  std::int64_t waves = 0;  // of a single computation
};
inline constexpr std::int64_t kWave = 256;  // the unit of waves
inline constexpr std::int32_t kSlowest = kOne / 64;

std::int32_t compute_speed(const Interference& law, const DeviceLoad& computing, const DeviceLoad& communicating);
std::int32_t communication_speed(const Interference& law, const DeviceLoad& computing, const DeviceLoad& communicating);

struct Agent {
  IdVec<TaskId, Task> tasks;
  IdVec<BodyId, std::vector<TaskId>> bodies;
  std::vector<Play> plays;
  std::int32_t run_ahead = 0;      // most tasks issued and not begun; 0: no limit. A task
                                   // that waits in a meeting has begun
  std::int32_t stands_for = 1;     // devices
  std::uint32_t interference = 0;  // index into Workload::interference

  bool operator==(const Agent&) const = default;
};

struct FlowLink {
  std::int64_t capacity = 0;  // bytes per second
  std::uint32_t label = 0;

  bool operator==(const FlowLink&) const = default;
};

struct Workload {
  IdVec<AgentId, Agent> agents;
  IdVec<WorkId, Work> works;
  IdVec<MeetingId, Meeting> meetings;
  IdVec<FlowLinkId, FlowLink> links;
  std::vector<Interference> interference = {{}};
  std::int32_t micro_batches = 1;

  bool operator==(const Workload&) const = default;
};

// The first and the last micro-batch for which an agent plays each body, in its order; −1: none.
struct PlayedRange {
  std::int32_t first = -1, last = -1;
};
IdVec<BodyId, PlayedRange> played_ranges(const Agent& agent);
// Whether a task of a body is part of a play of it, and whether it takes time there.
inline bool is_in(const Task& task, const PlayedRange& range, std::int32_t micro_batch) {
  return is_played(task.when, micro_batch == range.first, micro_batch == range.last);
}
inline bool works_in(const Task& task, const PlayedRange& range, std::int32_t micro_batch) {
  return is_in(task, range, micro_batch) && (task.when != PlayedFor::AfterFirst || micro_batch != range.first);
}

// No time in a workload or a run exceeds this: 26 days. A longer one is an error.
inline constexpr Picoseconds kTimeLimit = Picoseconds{1} << 61;

inline bool is_communication(const Work& work) { return work.bytes > 0 || !work.links.empty(); }

// Bytes per second of a communication that is alone: min(cap, min over links ⌊capacity·kOne / coefficient⌋, or `alone`
// instead of the latter), at least 1; 0 for work without cap and links.
std::int64_t isolated_rate(const Work& work, const IdVec<FlowLinkId, FlowLink>& links);

// The time of the work alone: fixed + ⌈bytes·10¹² / isolated rate⌉.
Picoseconds isolated_time(const Work& work, const IdVec<FlowLinkId, FlowLink>& links);

// The largest sum of isolated times over the streams of all agents: a lower bound on the makespan. Cost: linear in
// tasks.
Picoseconds busiest_stream(const Workload& workload);

// Checks that ids exist, used links have capacity, numbers are in range, and each meeting has as many agents as
// parties. Cost: linear in the workload.
Status check(const Workload& workload);

}  // namespace weft
