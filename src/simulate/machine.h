// The engine at work: the state of every agent, stream and communication, and the loop that moves it on.
//
// Agents and communications are the actors of one agenda. While nothing of an agent waits in a meeting or communicates,
// nobody else can touch it: it then runs ahead of the agenda through its computations, up to its next communication.
// What happens at one time is collected and settled together before time goes on: new communications, interference,
// rates. So nothing depends on the order in which actors of the same time are taken.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulate/agenda.h"
#include "simulate/engine.h"
#include "simulate/fair_shares.h"
#include "simulate/fifo_queues.h"
#include "simulate/script.h"
#include "simulate/wide.h"

namespace weft {

// A stream is idle (its head has not begun), or occupied by its head.
struct StreamState {
  Place head;          // the first step that has not ended; {plays, 0}: all have
  Place awaited;       // while `waits`: the place stream `awaited_stream` must come past
  Wide remaining = 0;  // of a computation at `since`, in 1/kOne ps
  Picoseconds since = 0;
  Picoseconds end = 0;  // of a computation, at the present speed
  std::uint8_t awaited_stream = 0;
  bool waits = false;

  bool operator==(const StreamState&) const = default;
};

struct AgentState {
  Place cursor;               // the next step the host issues
  Picoseconds host_time = 0;  // when it may start on that
  Picoseconds next = kNever;  // the agent's time on the agenda
  Picoseconds busy_since = 0, busy = 0, idle_since = 0, host_bound = 0, end = 0;
  std::int32_t outstanding = 0;  // issued and not begun; counted where run_ahead limits it
  // One bit per stream.
  std::uint8_t idle = 0, computing = 0, meeting = 0, communicating = 0;
  bool host_blocked = false;  // by a task that it waits for
  bool was_busy = false, was_occupied = false;
  // Of active communications, and the speeds that follow: in units of 1/kOne.
  std::int32_t sm_share = 0, memory_share = 0;
  std::int32_t compute_speed = kOne, communication_speed = kOne;

  bool operator==(const AgentState&) const = default;
};

enum class Phase : std::uint8_t { None, Latency, Flowing, Queued, Holding };

struct FlowState {
  Wide remaining = 0;  // at `since`, in 10⁻¹² bytes
  Picoseconds since = 0;
  Picoseconds end = 0;  // of the phase, at the present rate
  std::int64_t rate = 0;
  std::int64_t arrival = 0;  // order of joining the queues
  std::uint32_t work = 0;
  std::int32_t slowest = kOne;  // of its agents' communication speeds
  std::int32_t at_slowest = 0;  // how many of them
  Phase phase = Phase::None;

  bool operator==(const FlowState&) const = default;
};

// What static knowledge the machine takes from a workload, beside the agents' scripts.
struct Layout {
  struct Party {
    std::uint32_t agent = 0;
    std::uint32_t stream = 0;  // index over all agents' streams
  };
  std::vector<std::uint32_t> first_stream;  // per agent, and one past the end
  std::vector<std::uint32_t> agent_of;      // per stream
  std::vector<std::uint32_t> first_party;   // per meeting, and one past the end
  std::vector<Party> parties;
  IdVec<WorkId, std::int64_t> link_limit;  // isolated rate by links alone
  IdVec<WorkId, std::int64_t> rate;        // isolated
  bool interference = false;               // some work has shares
};

class Machine {
 public:
  // The workload is checked, and outlives the machine.
  Machine(const Workload& workload, const SimulateOptions& options);

  // Plays to the end. False: it stopped, for the reason `fault()` gives.
  bool run();
  Error fault() const;
  Run take_result();

 private:
  using Index = std::uint32_t;

  void reset();
  void step_time();
  void finish_phase(Index flow);
  void end_communication(Index flow);
  void run_agent(Index agent);
  void finish_computations(Index agent, Picoseconds now);
  bool begin_steps(Index agent, Picoseconds now);
  bool may_begin(Index agent, Index stream, const Step& step);
  bool is_issued(Index agent, Place place, Picoseconds now, Picoseconds& next_issue);
  bool issue_next(Index agent, Picoseconds now);
  bool begun(Index agent, Picoseconds now);
  void end_step(Index agent, Index stream, Picoseconds now);
  void account(Index agent, Picoseconds now);
  void arrive(Index agent, Index stream, const Step& step);
  void settle();
  void start(Index flow);
  void join_links(Index flow);
  void recompute_speeds(Index agent);
  void set_communication_speed(Index agent, std::int32_t speed);
  void apply_speed(Index flow);
  void find_slowest(Index flow);
  void set_rate(Index flow, std::int64_t rate);
  void mark(Index agent);
  Picoseconds next_event(Index agent) const;

  const Work& work_of(Index flow) const { return workload_.works[WorkId(flows_[flow].work)]; }
  std::span<const Layout::Party> parties(Index flow) const;
  Index flow_of(Index stream, const Step& step) const {
    return step.kind == StepKind::Meet ? static_cast<Index>(streams_.size()) + step.subject : stream;
  }
  Index actor_of_agent(Index agent) const { return static_cast<Index>(flows_.size()) + agent; }
  TaskTimes* times(Index agent, Place place) {
    return options_.record ? &times_[agent][scripts_[agent].ordinal(place)] : nullptr;
  }

  const Workload& workload_;
  SimulateOptions options_;
  std::vector<AgentScript> scripts_;
  Layout layout_;

  Picoseconds now_ = 0;
  Agenda agenda_;
  std::vector<AgentState> agents_;
  std::vector<StreamState> streams_;
  std::vector<const Step*> steps_;  // of each stream's head
  std::vector<FlowState> flows_;    // one per stream (its own communications), then one per meeting
  std::vector<std::int32_t> come_;  // parties that are at each meeting
  FairShares shares_;
  FifoQueues queues_;
  std::int64_t arrivals_ = 0;
  std::int64_t events_ = 0, tasks_ = 0;
  IdVec<WorkId, std::int64_t> done_;  // communications of each work that ended

  // To be settled before time goes on.
  std::vector<Index> starting_, joining_, marked_, slowed_;
  std::vector<char> is_marked_, is_slowed_;
  std::vector<std::vector<TaskTimes>> times_;
};

}  // namespace weft
