// The engine at work: the state of every agent, stream and communication, and the loop that moves it on.
//
// Agents and communications are the actors of one agenda. While nothing of an agent waits in a meeting or communicates,
// nobody else can touch it: it then runs ahead of the agenda through its computations, up to its next communication.
// What happens at one time is collected and settled together before time goes on: new communications, interference,
// rates. So nothing depends on the order in which actors of the same time are taken.
//
// Agents with the same steps that communicate in meetings only, and in the same ones, are always in the same state: one
// of them, the first, may act for all. Where they come to a meeting, as many come.
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
  Wide remaining = 0;     // of a computation at `since`, in 1/kOne ps
  Place head;             // the first step that has not ended; {plays, 0}: all have
  Place done = kNowhere;  // the last that has
  Place awaited;          // while `waits`: the place stream `awaited_stream` must come past
  Picoseconds since = 0;
  Picoseconds end = 0;  // of a computation, at the present speed
  std::uint8_t awaited_stream = 0;
  bool waits = false;
};

inline StreamMask bit_of(std::uint32_t stream) { return static_cast<StreamMask>(1u << stream); }

struct AgentState {
  Place cursor;               // the next step the host issues
  Picoseconds host_time = 0;  // when it may start on that
  Picoseconds next = kNever;  // the agent's time on the agenda
  Picoseconds busy_since = 0, busy = 0, idle_since = 0, host_bound = 0, end = 0;
  std::int32_t outstanding = 0;  // issued and not begun; counted where run_ahead limits it
  // One bit per stream.
  StreamMask idle = 0, computing = 0, meeting = 0, communicating = 0;
  StreamMask held = 0;        // of the idle: wait for a stream that has not come so far
  bool host_blocked = false;  // by a task that it waits for
  bool was_busy = false, was_occupied = false;
  // Of active communications, and the speeds that follow: in units of 1/kOne.
  std::int32_t sm_share = 0, memory_share = 0;
  std::int32_t compute_speed = kOne, communication_speed = kOne;

  bool finished() const { return (idle | computing | meeting | communicating) == 0; }
};

// A stream that computes may go through a row of steps that wait for nothing, and that nobody waits for yet, in one go:
// its `end` is then that of the row. Where it stands is found when somebody asks.
struct RowState {
  Picoseconds head_end = 0;      // of the head alone
  std::uint32_t length = 0;      // steps after the head
  std::uint32_t last = kNoStep;  // of the row, in the head's play; kNoStep: no row
};

// Idle streams that wait for one, one bit each, and the first place that it must come past.
struct Hold {
  Place until;
  StreamMask streams = 0;
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
};

// What static knowledge the machine takes from a workload, beside the agents' scripts.
struct Layout {
  struct Party {
    std::uint32_t agent = 0;
    std::uint32_t stream = 0;  // index over all agents' streams
    std::uint32_t tasks = 1;   // that bring it there
  };
  std::vector<std::uint32_t> first_stream;  // per agent, and one past the end
  std::vector<std::uint32_t> agent_of;      // per stream
  std::vector<std::vector<Party>> parties;  // per meeting, by agent
  IdVec<WorkId, std::int64_t> link_limit;   // isolated rate by links alone
  IdVec<WorkId, std::int64_t> rate;         // isolated
  bool interference = false;                // some work has shares
};

// A state of the machine between two times. Places are written as (play, task), which edits elsewhere do not change; of
// an idle stream only `done` counts, of the host only what it issued last (`cursor` holds that).
struct Checkpoint {
  Picoseconds now = 0;
  std::vector<AgentState> agents;
  std::vector<StreamState> streams;
  std::vector<Picoseconds> agenda;                         // of each agent; kNever: nothing on it
  std::vector<std::pair<std::uint32_t, FlowState>> flows;  // under way; under fifo in order of arrival

  // The one agent is where the other is.
  void copy(std::uint32_t from, std::uint32_t to, const Layout& layout);
};

// Where the streams and the host of one agent stand.
struct Stand {
  std::array<Place, kMaxStreams> heads, done;
  Place cursor;
};

// For a workload that will change: streams of an agent, at least, and where scripts have their blocks (script.h).
struct Room {
  int streams = 1;
  BlockPool* pool = nullptr;
};

class Machine {
 public:
  // The workload is checked, and outlives the machine.
  Machine(const Workload& workload, const SimulateOptions& options, const Room& room = {});

  // Plays to the end. False: it stopped, for the reason `fault()` gives.
  bool run();
  Error fault() const;
  Run take_result();

  // For those who stop and go (delta.h).
  bool stopped() const { return agenda_.empty() || agenda_.time() > kTimeLimit; }
  bool finished() const;  // all agents
  void step_time();
  Picoseconds now() const { return now_; }
  std::int64_t tasks() const { return tasks_; }
  const AgentScript& script(std::uint32_t agent) const { return scripts_[agent]; }
  AgentScript& script(std::uint32_t agent) { return scripts_[agent]; }
  const AgentState& agent(std::uint32_t agent) const { return agents_[leader_[agent]]; }
  const StreamState& stream(std::uint32_t stream) const { return streams_[acting(stream)]; }
  const Layout& layout() const { return layout_; }
  Layout& layout() { return layout_; }
  void set_end(std::uint32_t agent, Picoseconds end) { agents_[leader_[agent]].end = end; }
  // Who acts for each agent. The state is then worth nothing until `reset` or `restore`.
  void let_act(const IdVec<AgentId, AgentId>& leaders);
  AgentScript exchange_script(std::uint32_t agent, AgentScript script);
  // After works, meetings or links were added or replaced. The state is then worth nothing until `restore`.
  void workload_changed(std::uint32_t first_changed_work);

  // Brings the agent's streams that go through rows to where they are.
  void catch_up(std::uint32_t agent);
  // When the head of a stream that computes ends, at the present speed.
  Picoseconds head_end(std::uint32_t stream) const {
    return rows_[stream].last != kNoStep ? rows_[stream].head_end : streams_[stream].end;
  }
  Checkpoint save();
  // Agents stand where `stand_of(agent)` says; nothing else in the checkpoint but times depends on scripts.
  template <class StandOf>
  void restore(const Checkpoint& checkpoint, Picoseconds shift, const StandOf& stand_of) {
    restore_times(checkpoint, shift);
    for (std::uint32_t agent = 0; agent < agents_.size(); ++agent)
      if (acts(agent)) put(agent, stand_of(agent));
    restore_flows(checkpoint, shift);
  }
  // Is this the state, `shift` later: but for where agents stand, and that. Hosts that never hold anything up are not
  // compared.
  bool equals(const Checkpoint& checkpoint, Picoseconds shift);
  template <class StandOf>
  bool stands(const StandOf& stand_of) const {
    for (std::uint32_t agent = 0; agent < agents_.size(); ++agent)
      if (acts(agent) && !stands(agent, stand_of(agent))) return false;
    return true;
  }
  bool host_is_free(std::uint32_t agent) const { return free_host_[agent] != 0; }
  std::uint32_t streams_of(std::uint32_t agent) const {
    return layout_.first_stream[agent + 1] - layout_.first_stream[agent];
  }

  // Back to the beginning.
  void reset();

 private:
  using Index = std::uint32_t;

  void restore_times(const Checkpoint& checkpoint, Picoseconds shift);
  void restore_flows(const Checkpoint& checkpoint, Picoseconds shift);
  void put(Index agent, const Stand& stand);
  bool equals(Index agent, const Checkpoint& checkpoint, Picoseconds shift) const;
  bool stands(Index agent, const Stand& stand) const;
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
  // The head of a stream is another: those that it held may look again.
  void let_go(AgentState& state, Index stream) {
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
  // The same stream of the agent that acts.
  Index acting(Index stream) const {
    const Index agent = layout_.agent_of[stream];
    return stream - layout_.first_stream[agent] + layout_.first_stream[leader_[agent]];
  }
  // What interference leaves of the rate that the flow has alone, and no more than its links allow.
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
  std::vector<char> free_host_;  // it takes no time, waits for nothing and may run ahead: it never holds anything up
  Layout layout_;
  std::vector<Index> leader_;        // of each agent: who acts for it
  std::vector<std::int32_t> alike_;  // how many an agent acts for; 0: another does

  Picoseconds now_ = 0;
  Agenda agenda_;
  std::vector<AgentState> agents_;
  std::vector<StreamState> streams_;
  std::vector<const Step*> steps_;  // of each stream's head
  std::vector<RowState> rows_;      // of each stream
  std::vector<Hold> holds_;         // by each stream
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

}  // namespace weft::engine
