// The state of the engine — every agent, stream and communication — and its event loop.
//
// Agents and communications are the actors of one event queue, the agenda. While no task of an agent waits in a meeting
// or communicates, no other actor can affect it: it then runs ahead of the agenda through its computations, up to its
// next communication. All effects of one time are collected and applied together before time advances: new
// communications, interference, rates. So the result does not depend on the order of actors at the same time.
//
// Identical agents (twins.h) are always in the same state: the first of them may act for all, and then counts as all of
// them at a meeting.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "simulate/agenda.h"
#include "simulate/engine.h"
#include "simulate/fair_shares.h"
#include "simulate/fifo_queues.h"
#include "simulate/script.h"
#include "simulate/wide.h"

namespace weft::engine {

// A stream is idle (its head has not begun), or occupied by its head.
struct StreamState {
  Wide remaining = 0;     // work left of a computation at `since`, in 1/kOne ps
  Place head;             // the first step that has not ended; {plays, 0}: all have ended
  Place done = kNowhere;  // the last step that has ended
  Place awaited;          // while `waits`: the place that stream `awaited_stream` must pass
  Picoseconds since = 0;
  Picoseconds end = 0;  // end of a computation at the current speed
  std::uint8_t awaited_stream = 0;
  bool waits = false;
};

inline StreamMask bit_of(std::uint32_t stream) { return static_cast<StreamMask>(1u << stream); }

struct AgentState {
  Place cursor;               // the next step the host issues
  Picoseconds host_time = 0;  // when it may start to issue that
  Picoseconds next = kNever;  // time of the agent's next event
  Picoseconds busy_since = 0, busy = 0, idle_since = 0, host_bound = 0, end = 0;
  std::int32_t outstanding = 0;  // tasks issued and not begun; counted if run_ahead limits them
  // Sets of streams, one bit each.
  StreamMask idle = 0, computing = 0, meeting = 0, communicating = 0;
  StreamMask held = 0;        // idle streams that wait for another stream's progress
  bool host_blocked = false;  // the host waits for a task
  bool was_busy = false, was_occupied = false;
  // Summed shares of active communications, and the speeds that follow, in units of 1/kOne.
  std::int32_t sm_share = 0, memory_share = 0;
  std::int32_t compute_speed = kOne, communication_speed = kOne;

  bool finished() const { return (idle | computing | meeting | communicating) == 0; }
};

// A computing stream may execute a row of consecutive steps without unsatisfied waits, and on which no other stream
// waits yet, as one event: its `end` is then that of the row. Its head within the row is found on demand (catch_up).
struct RowState {
  Picoseconds head_end = 0;      // end of the head alone
  std::uint32_t length = 0;      // steps after the head
  std::uint32_t last = kNoStep;  // last step of the row, in the head's play; kNoStep: no row
};

// The idle streams that wait for a stream, one bit each, and the first place that it must pass.
struct Hold {
  Place until;
  StreamMask streams = 0;
};

enum class Phase : std::uint8_t { None, Latency, Flowing, Queued, Holding };

struct FlowState {
  Wide remaining = 0;  // bytes left at `since`, in 10⁻¹² bytes
  Picoseconds since = 0;
  Picoseconds end = 0;  // end of the phase at the current rate
  std::int64_t rate = 0;
  std::int64_t arrival = 0;  // order of joining the queues
  std::uint32_t work = 0;
  std::int32_t slowest = kOne;  // the least of its agents' communication speeds
  std::int32_t at_slowest = 0;  // how many agents have that speed
  Phase phase = Phase::None;
};

// Static data that the machine derives from a workload, besides the agents' scripts.
struct Layout {
  struct Party {
    std::uint32_t agent = 0;
    std::uint32_t stream = 0;  // index over all agents' streams
    std::uint32_t tasks = 1;   // tasks of the agent in the meeting
  };
  std::vector<std::uint32_t> first_stream;  // per agent, and one past the end
  std::vector<std::uint32_t> agent_of;      // per stream
  std::vector<std::vector<Party>> parties;  // per meeting, by agent
  IdVec<WorkId, std::int64_t> link_limit;   // isolated rate by links alone
  IdVec<WorkId, std::int64_t> rate;         // isolated
  bool interference = false;                // some work has shares
};

// A state of the machine between two times. Places are stored as (play, task), which edits elsewhere do not change; of
// an idle stream only `done` matters, of the host only the last issued task (`cursor` holds it).
struct Checkpoint {
  Picoseconds now = 0;
  std::vector<AgentState> agents;
  std::vector<StreamState> streams;
  std::vector<Picoseconds> agenda;                         // next event of each agent; kNever: none
  std::vector<std::pair<std::uint32_t, FlowState>> flows;  // active flows; under fifo in order of arrival

  // Copies the state of agent `from` to agent `to`.
  void copy(std::uint32_t from, std::uint32_t to, const Layout& layout);
};

// How far the streams and the host of one agent have come.
struct Progress {
  std::array<Place, kMaxStreams> heads, done;
  Place cursor;
};

// What is counted in a run.
struct Tally {
  std::int64_t tasks = 0, events = 0;
  IdVec<WorkId, std::int64_t> done;  // ended communications of each work
};

// For a workload that will be edited: streams to reserve per agent, and the pool of the scripts' blocks (block.h).
struct EditSupport {
  int streams = 1;
  BlockPool* pool = nullptr;
};

class Machine {
 public:
  // The workload must have passed `check`, and outlives the machine.
  Machine(const Workload& workload, const SimulateOptions& options, const EditSupport& support = {});

  // Simulates to the end. False: it stopped for the reason that `fault()` gives.
  bool run();
  Error fault() const;
  Run take_result();

  // Step by step, for delta simulation.
  bool stopped() const { return agenda_.empty() || agenda_.time() > kTimeLimit; }
  bool finished() const;  // all agents
  void step_time();
  Picoseconds now() const { return now_; }
  std::int64_t tasks() const { return tally_.tasks; }
  const AgentScript& script(std::uint32_t agent) const { return scripts_[agent]; }
  AgentScript& script(std::uint32_t agent) { return scripts_[agent]; }
  const AgentState& agent(std::uint32_t agent) const { return agents_[leader_[agent]]; }
  const StreamState& stream(std::uint32_t stream) const { return streams_[acting(stream)]; }
  const Layout& layout() const { return layout_; }
  Layout& layout() { return layout_; }
  void set_end(std::uint32_t agent, Picoseconds end) { agents_[leader_[agent]].end = end; }
  // Sets which agent acts for each. The state is invalid until `reset` or `restore`.
  void set_leaders(const IdVec<AgentId, AgentId>& leaders);
  AgentScript exchange_script(std::uint32_t agent, AgentScript script);
  // To be called after works, meetings or links were added or replaced. The state is invalid until `restore`.
  void workload_changed(std::uint32_t first_changed_work);

  // Updates the heads of the agent's streams that execute rows to the current time.
  void catch_up(std::uint32_t agent);
  // The end of the head of a computing stream at the current speed.
  Picoseconds head_end(std::uint32_t stream) const {
    return rows_[stream].last != kNoStep ? rows_[stream].head_end : streams_[stream].end;
  }
  Checkpoint save();
  // Restores the checkpoint, with the progress of each agent from `progress_of(agent)`: nothing else in a checkpoint
  // but times depends on scripts.
  template <class ProgressOf>
  void restore(const Checkpoint& checkpoint, Picoseconds shift, const ProgressOf& progress_of) {
    restore_times(checkpoint, shift);
    for (std::uint32_t agent = 0; agent < agents_.size(); ++agent)
      if (acts(agent)) put(agent, progress_of(agent));
    restore_flows(checkpoint, shift);
  }
  // Whether the state is that of the checkpoint, `shift` later, except for the progress of agents (`is_at`). Hosts that
  // never delay a task are not compared.
  bool equals(const Checkpoint& checkpoint, Picoseconds shift);
  template <class ProgressOf>
  bool is_at(const ProgressOf& progress_of) const {
    for (std::uint32_t agent = 0; agent < agents_.size(); ++agent)
      if (acts(agent) && !is_at(agent, progress_of(agent))) return false;
    return true;
  }
  bool host_is_free(std::uint32_t agent) const { return free_host_[agent] != 0; }
  std::uint32_t streams_of(std::uint32_t agent) const {
    return layout_.first_stream[agent + 1] - layout_.first_stream[agent];
  }

  // Back to the beginning.
  void reset();

  // For steady states (steady_state.h): `step_time` returns when this stream comes to another play.
  void watch(std::uint32_t stream) { watched_ = stream; }
  std::uint32_t agents() const { return static_cast<std::uint32_t>(agents_.size()); }
  const Tally& tally() const { return tally_; }
  // The state is that of an earlier time, shifted: shifts it as many times more, to where agents will then be.
  void repeat(const Checkpoint& earlier, const Tally& then, std::int64_t times, const std::vector<Progress>& to);

 private:
  using Index = std::uint32_t;

  void restore_times(const Checkpoint& checkpoint, Picoseconds shift);
  void restore_flows(const Checkpoint& checkpoint, Picoseconds shift);
  void put(Index agent, const Progress& progress);
  bool equals(Index agent, const Checkpoint& checkpoint, Picoseconds shift) const;
  bool is_at(Index agent, const Progress& progress) const;
  bool equal_flows(const Checkpoint& checkpoint, Picoseconds shift) const;
  template <class Visit>
  void each_flow(const Visit& visit) const;
  void finish_phase(Index flow);
  void end_communication(Index flow);
  void run_agent(Index agent);
  void finish_computations(Index agent, Picoseconds now);
  void go_in_rows(Index agent);
  void catch_up(Index agent, Index stream, Picoseconds now);
  void end_rows(Index agent);
  Picoseconds acts_at(Index agent) const;
  bool begin_steps(Index agent, Picoseconds now);
  bool may_begin(Index agent, Index stream, const Step& step);
  // The head of a stream has changed: streams that wait for it are checked again.
  void release_holds(AgentState& state, Index stream) {
    Hold& hold = holds_[stream];
    if (hold.streams == 0 || !(hold.until < streams_[stream].head)) return;
    state.held = static_cast<StreamMask>(state.held & ~std::exchange(hold.streams, 0));
  }
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

  bool acts(Index agent) const { return leader_[agent] == agent; }
  // The same stream of the agent's leader.
  Index acting(Index stream) const {
    const Index agent = layout_.agent_of[stream];
    return stream - layout_.first_stream[agent] + layout_.first_stream[leader_[agent]];
  }
  // The flow's isolated rate reduced by interference, at most what its links allow.
  std::int64_t cap_of(const FlowState& flow) const {
    const WorkId work(flow.work);
    const auto slowed = static_cast<std::int64_t>(Wide{layout_.rate[work]} * flow.slowest / kOne);
    return std::clamp<std::int64_t>(slowed, 1, layout_.link_limit[work]);
  }
  const Work& work_of(Index flow) const { return workload_.works[WorkId(flows_[flow].work)]; }
  const std::vector<Layout::Party>& parties(Index flow) const { return layout_.parties[flow - streams_.size()]; }
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
  std::vector<char> free_host_;  // it takes no time, never waits and has no run-ahead limit: it never delays a task
  Layout layout_;
  std::vector<Index> leader_;           // of each agent: the agent that acts for it
  std::vector<std::int32_t> acts_for_;  // agents that an agent acts for; 0: another acts for it

  Picoseconds now_ = 0;
  Agenda agenda_;
  std::vector<AgentState> agents_;
  std::vector<StreamState> streams_;
  std::vector<const Step*> steps_;     // of each stream's head
  std::vector<RowState> rows_;         // of each stream
  std::vector<Hold> holds_;            // by awaited stream
  std::vector<FlowState> flows_;       // one per stream (its own communications), then one per meeting
  std::vector<std::int32_t> arrived_;  // parties that have arrived at each meeting
  FairShares shares_;
  FifoQueues queues_;
  std::int64_t arrivals_ = 0;
  Tally tally_;
  Index watched_ = kNoStep;

  // To be processed before time advances.
  std::vector<Index> starting_, joining_, marked_, slowed_;
  std::vector<char> is_marked_, is_slowed_;
  std::vector<std::vector<TaskTimes>> times_;
};

}  // namespace weft::engine
