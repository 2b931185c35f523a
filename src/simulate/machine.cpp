#include "simulate/machine.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace weft::engine {
namespace {

Layout make_layout(const Workload& workload, const std::vector<AgentScript>& scripts, int at_least) {
  Layout layout;
  layout.first_stream.push_back(0);
  for (std::uint32_t agent = 0; agent < scripts.size(); ++agent) {
    const auto streams = static_cast<std::uint32_t>(std::max(scripts[agent].streams(), at_least));
    layout.first_stream.push_back(layout.first_stream.back() + streams);
    layout.agent_of.insert(layout.agent_of.end(), streams, agent);
  }

  layout.parties.resize(workload.meetings.size());
  for (const AgentId id : workload.agents.ids()) {
    const Agent& agent = workload.agents[id];
    for (const std::vector<TaskId>& body : agent.bodies)
      for (const TaskId task_id : body) {
        const Task& task = agent.tasks[task_id];
        if (!task.meeting.valid()) continue;
        std::vector<Layout::Party>& parties = layout.parties[task.meeting.index()];
        if (parties.empty()) parties.reserve(static_cast<std::size_t>(workload.meetings[task.meeting].parties));
        if (parties.empty() || parties.back().agent != id.index())
          parties.push_back({id.index(), layout.first_stream[id.index()] + task.stream});
        else
          ++parties.back().tasks;
      }
  }
  return layout;
}

}  // namespace

Machine::Machine(const Workload& workload, const SimulateOptions& options, const EditSupport& support)
    : workload_(workload), options_(options) {
  scripts_.reserve(workload.agents.size());
  for (const Agent& agent : workload.agents) {
    scripts_.emplace_back(workload, agent, support.pool);
    if (support.pool != nullptr && scripts_.size() > 1) scripts_.back().share_with(scripts_.end()[-2]);
  }
  layout_ = make_layout(workload, scripts_, support.streams);
  leader_.resize(scripts_.size());
  std::iota(leader_.begin(), leader_.end(), 0);
  acts_for_.assign(scripts_.size(), 1);
  workload_changed(0);
  reset();
}

void Machine::workload_changed(std::uint32_t first_changed_work) {
  const std::size_t works = workload_.works.size();
  layout_.rate.resize(works);
  layout_.link_limit.resize(works);
  for (WorkId id(first_changed_work); id.index() < works; ++id) {
    const Work& work = workload_.works[id];
    layout_.rate[id] = isolated_rate(work, workload_.links);
    layout_.link_limit[id] = work.links.empty() ? std::numeric_limits<std::int64_t>::max()
                             : work.cap == 0 && work.alone == 0
                                 ? layout_.rate[id]
                                 : isolated_rate(Work{.links = work.links}, workload_.links);
    layout_.interference |= options_.network == Network::Fair && (work.sm_share != 0 || work.memory_share != 0);
  }
  layout_.parties.resize(workload_.meetings.size());
}

void Machine::set_leaders(const IdVec<AgentId, AgentId>& leaders) {
  std::fill(acts_for_.begin(), acts_for_.end(), 0);
  for (Index agent = 0; agent < leader_.size(); ++agent) {
    leader_[agent] = leaders[AgentId(agent)].index();
    ++acts_for_[leader_[agent]];
  }
}

void Machine::reset() {
  const std::size_t agents = scripts_.size();
  const std::size_t streams = layout_.first_stream.back();
  const std::size_t flows = streams + workload_.meetings.size();
  now_ = 0;
  free_host_.resize(agents);
  for (std::size_t i = 0; i < agents; ++i)
    free_host_[i] = scripts_[i].host_is_free() && workload_.agents[AgentId(i)].run_ahead == 0;
  agents_.assign(agents, {});
  streams_.assign(streams, {});
  steps_.assign(streams, nullptr);
  rows_.assign(streams, {});
  holds_.assign(streams, {});
  flows_.assign(flows, {});
  arrived_.assign(workload_.meetings.size(), 0);
  tally_.done = IdVec<WorkId, std::int64_t>(workload_.works.size());
  is_marked_.assign(agents, 0);
  is_slowed_.assign(flows, 0);
  if (options_.network == Network::Fair) {
    shares_.reset(workload_.links, flows);
  } else {
    queues_.reset(workload_.links.size(), flows);
  }
  agenda_.reset(flows + agents);
  if (options_.record) {
    times_.resize(agents);
    for (std::size_t agent = 0; agent < agents; ++agent) times_[agent].assign(scripts_[agent].executed(), {});
  }
  for (Index agent = 0; agent < agents; ++agent) {
    if (!acts(agent)) continue;
    const AgentScript& script = scripts_[agent];
    AgentState& state = agents_[agent];
    state.cursor = script.first_issued();
    for (Index s = 0; s < streams_of(agent); ++s) {
      const Index stream = layout_.first_stream[agent] + s;
      const Place head = script.first_from(0, static_cast<int>(s));
      streams_[stream].head = head;
      if (head.play == script.plays()) continue;
      steps_[stream] = &script.step(head);
      state.idle = static_cast<StreamMask>(state.idle | bit_of(s));
    }
    if (state.idle != 0) agenda_.set(actor_of_agent(agent), 0);
  }
}

bool Machine::run() {
  while (!agenda_.empty()) {
    if (agenda_.time() > kTimeLimit) return false;
    step_time();
  }
  return finished();
}

bool Machine::finished() const {
  return std::all_of(leader_.begin(), leader_.end(), [&](Index agent) { return agents_[agent].finished(); });
}

// Processes all events of the agenda's next time.
void Machine::step_time() {
  now_ = agenda_.time();
  do {
    while (!agenda_.empty() && agenda_.time() == now_) {
      const Index actor = agenda_.pop();
      if (actor < flows_.size()) {
        finish_phase(actor);
      } else {
        run_agent(actor - static_cast<Index>(flows_.size()));
      }
    }
    settle();
  } while (!agenda_.empty() && agenda_.time() == now_);
}

void Machine::run_agent(Index agent) {
  AgentState& state = agents_[agent];
  Picoseconds now = now_;
  const std::uint32_t play = watched_ != kNoStep ? streams_[watched_].head.play : 0;
  for (;;) {
    finish_computations(agent, now);
    const bool communicates = begin_steps(agent, now);
    account(agent, now);
    if (communicates) {  // at a time that the agenda has not reached
      state.next = now;
      agenda_.set(actor_of_agent(agent), now);
      return;
    }
    const Picoseconds next = std::min(state.next, next_event(agent));
    if (next == kNever) return;
    // Alone, and at a constant speed: no other actor can affect it before it communicates again.
    const bool alone = (state.meeting | state.communicating) == 0 && is_marked_[agent] == 0;
    const bool seen =
        watched_ != kNoStep && layout_.agent_of[watched_] == agent && streams_[watched_].head.play != play;
    if (!alone || seen || next > kTimeLimit) {
      agenda_.set(actor_of_agent(agent), next);
      return;
    }
    now = next;
  }
}

void Machine::finish_computations(Index agent, Picoseconds now) {
  AgentState& state = agents_[agent];
  const Index first = layout_.first_stream[agent];
  for (unsigned mask = state.computing; mask != 0; mask &= mask - 1) {
    const auto s = static_cast<Index>(std::countr_zero(mask));
    if (rows_[first + s].last != kNoStep) catch_up(agent, first + s, now);
    if (streams_[first + s].end > now) continue;
    rows_[first + s].last = kNoStep;
    state.computing = static_cast<StreamMask>(state.computing & ~bit_of(s));
    end_step(agent, first + s, now);
    if (state.communicating != 0) mark(agent);
  }
}

// Streams that compute at full speed execute consecutive steps without unsatisfied waits as one event, up to a step for
// which an idle stream waits.
void Machine::go_in_rows(Index agent) {
  constexpr int kMost = 256;  // steps and hops: bounds the cost of a row that is cut short
  const AgentState& state = agents_[agent];
  const Index first = layout_.first_stream[agent];
  for (unsigned mask = state.computing; mask != 0; mask &= mask - 1) {
    const auto bit = static_cast<Index>(std::countr_zero(mask));
    StreamState& s = streams_[first + bit];
    RowState& row = rows_[first + bit];
    std::uint32_t awaited = kNoStep;
    for (unsigned idle = state.idle; idle != 0; idle &= idle - 1) {
      const StreamState& other = streams_[first + static_cast<Index>(std::countr_zero(idle))];
      if (other.waits && other.awaited_stream == bit && other.awaited.play == s.head.play)
        awaited = std::min(awaited, other.awaited.position);
    }
    if (row.last != kNoStep && row.last <= awaited) continue;  // the row continues
    if (row.last != kNoStep) s.end = row.head_end;
    row.head_end = s.end;
    const Script& script = scripts_[agent].script(s.head.play);
    const auto holds_up = [&](const StepWait& wait) {
      Place place;
      return scripts_[agent].find(wait, s.head.play, place) && !(place < streams_[first + wait.stream].head);
    };
    const auto waits = [&](const Step& step, std::uint32_t position) {
      const auto list = script.waits_of(step, position);
      return std::any_of(list.begin(), list.end(), holds_up);
    };
    const auto fits = [&](const Hop& hop) {
      return hop.last <= awaited && (hop.awaited == kNoStep || !holds_up(hop.wait()));
    };
    std::uint32_t last = s.head.position, next = steps_[first + bit]->next, length = 0;
    for (int i = 0; i < kMost && next != kNoStep && last < awaited && s.end <= kTimeLimit; ++i) {
      if (const Hop* const hop = script.hop_from(next, fits)) {
        s.end += hop->duration;
        last = hop->last;
        next = hop->next;
        length += hop->steps;
        continue;
      }
      const Step& step = script.step(next);
      if (step.kind != StepKind::Compute || (step.wait_count != 0 && waits(step, next))) break;
      s.end += step.duration;
      last = next;
      next = step.next;
      ++length;
    }
    row.last = length == 0 ? kNoStep : last;
    row.length = length;
  }
}

// Updates the head of a stream that executes a row to time `now`.
void Machine::catch_up(Index agent, Index stream, Picoseconds now) {
  StreamState& s = streams_[stream];
  RowState& row = rows_[stream];
  const Script& script = scripts_[agent].script(s.head.play);
  std::uint32_t head = s.head.position;
  if (head == row.last || row.head_end > now) return;
  if (s.end <= now) {  // the whole row has ended
    tally_.events += row.length;
    tally_.tasks += std::int64_t{row.length} * acts_for_[agent];
    row = {s.end, 0, row.last};
    s.head.position = row.last;
    steps_[stream] = &script.step(row.last);
    release_holds(agents_[agent], stream);
    return;
  }
  const auto pass = [&](std::uint32_t to, Picoseconds duration, std::uint32_t steps) {
    s.done.position = std::exchange(head, to);
    s.since = row.head_end;
    row.head_end += duration;
    row.length -= steps;
    tally_.events += steps;
    tally_.tasks += std::int64_t{steps} * acts_for_[agent];
  };
  while (row.head_end <= now) {  // the row's last step has not ended
    const std::uint32_t next = script.step(head).next;
    const auto fits = [&](const Hop& hop) { return hop.last < row.last && row.head_end + hop.duration <= now; };
    if (const Hop* const hop = script.hop_from(next, fits))
      pass(hop->last, hop->duration, hop->steps);  // the hop's last step has ended too, so another step follows
    else
      pass(next, script.step(next).duration, 1);
  }
  s.done.play = s.head.play;
  s.head.position = head;
  steps_[stream] = &script.step(head);
  release_holds(agents_[agent], stream);
  s.remaining = Wide{steps_[stream]->duration} * kOne;
}

void Machine::catch_up(Index agent) {
  for (unsigned mask = agents_[agent].computing; mask != 0; mask &= mask - 1) {
    const Index stream = layout_.first_stream[agent] + static_cast<Index>(std::countr_zero(mask));
    if (rows_[stream].last != kNoStep) catch_up(agent, stream, now_);
  }
}

// The speed changes: streams execute step by step again.
void Machine::end_rows(Index agent) {
  catch_up(agent);
  const AgentState& state = agents_[agent];
  bool any = false;
  for (unsigned mask = state.computing; mask != 0; mask &= mask - 1) {
    const Index stream = layout_.first_stream[agent] + static_cast<Index>(std::countr_zero(mask));
    if (rows_[stream].last == kNoStep) continue;
    streams_[stream].end = rows_[stream].head_end;
    rows_[stream].last = kNoStep;
    any = true;
  }
  if (any) agenda_.set(actor_of_agent(agent), std::min(state.next, next_event(agent)));
}

// The time of the agent's next event when executed step by step.
Picoseconds Machine::acts_at(Index agent) const {
  Picoseconds time = agenda_.time_of(actor_of_agent(agent), kNever);
  for (unsigned mask = agents_[agent].computing; mask != 0; mask &= mask - 1) {
    const Index stream = layout_.first_stream[agent] + static_cast<Index>(std::countr_zero(mask));
    if (rows_[stream].last != kNoStep) time = std::min(time, rows_[stream].head_end);
  }
  return time;
}

// The head of a stream has ended: the next one becomes the head.
void Machine::end_step(Index agent, Index stream, Picoseconds now) {
  AgentState& state = agents_[agent];
  StreamState& s = streams_[stream];
  const Step& step = *steps_[stream];
  const AgentScript& script = scripts_[agent];
  if (TaskTimes* t = times(agent, s.head)) t->end = now;
  if (step.host_waits) {
    state.host_blocked = false;
    state.host_time = std::max(state.host_time, now);
  }
  state.end = now;
  s.waits = false;
  s.done = s.head;
  s.head = script.next_in_stream(s.head, step);
  release_holds(state, stream);
  if (s.head.play == script.plays()) return;
  steps_[stream] = &script.step(s.head);
  state.idle = static_cast<StreamMask>(state.idle | bit_of(step.stream));
}

// Begins all steps that can begin now. True: a communication could begin, but the agent is ahead of the agenda.
bool Machine::begin_steps(Index agent, Picoseconds now) {
  AgentState& state = agents_[agent];
  const Index first = layout_.first_stream[agent];
  const bool limited = workload_.agents[AgentId(agent)].run_ahead > 0;
  const bool unhosted = free_host_[agent] != 0 && !options_.record;
  bool communicates = false;
  for (bool again = true; again;) {
    again = false;
    communicates = false;
    state.next = kNever;
    // Each stream once, in order; a held one is checked again if the awaited step ends meanwhile.
    for (unsigned left = state.idle; (left & ~unsigned{state.held}) != 0;) {
      const auto bit = static_cast<Index>(std::countr_zero(left & ~unsigned{state.held}));
      left &= ~0u << (bit + 1);
      const Index stream = first + bit;
      StreamState& s = streams_[stream];
      const Step& step = *steps_[stream];
      if (step.wait_count != 0 && !may_begin(agent, stream, step)) {
        Hold& hold = holds_[first + s.awaited_stream];
        if (hold.streams == 0 || s.awaited < hold.until) hold.until = s.awaited;
        hold.streams = static_cast<StreamMask>(hold.streams | bit_of(bit));
        state.held = static_cast<StreamMask>(state.held | bit_of(bit));
        continue;
      }
      if (!unhosted && !(s.head < state.cursor) && !is_issued(agent, s.head, now, state.next)) continue;
      if (step.kind != StepKind::Compute && now > now_) {
        communicates = true;
        continue;
      }
      ++tally_.events;
      tally_.tasks += acts_for_[agent];
      if (TaskTimes* t = times(agent, s.head)) t->start = now;
      if (limited) again |= begun(agent, now);
      state.idle = static_cast<StreamMask>(state.idle & ~bit_of(bit));
      if (step.kind != StepKind::Compute) {
        arrive(agent, stream, step);
      } else if (step.duration == 0) {
        end_step(agent, stream, now);
        again = true;
      } else {
        state.computing = static_cast<StreamMask>(state.computing | bit_of(bit));
        s.remaining = Wide{step.duration} * kOne;
        s.since = now;
        s.end = now + (state.compute_speed == kOne ? step.duration : time_at_rate(s.remaining, state.compute_speed));
        if (state.communicating != 0) mark(agent);
      }
    }
  }
  if (unhosted && state.computing != 0 && state.compute_speed == kOne &&
      !(layout_.interference && state.communicating != 0))
    go_in_rows(agent);
  return communicates;
}

// Whether all tasks that the step waits for have ended. An unfinished one is remembered, so that the next check is
// cheap.
bool Machine::may_begin(Index agent, Index stream, const Step& step) {
  StreamState& s = streams_[stream];
  const Index first = layout_.first_stream[agent];
  if (s.waits && !(s.awaited < streams_[first + s.awaited_stream].head)) return false;
  const AgentScript& script = scripts_[agent];
  for (const StepWait& wait : script.script(s.head.play).waits_of(step, s.head.position)) {
    Place place;
    if (!script.find(wait, s.head.play, place) || place < streams_[first + wait.stream].head) continue;
    s.waits = true;
    s.awaited = place;
    s.awaited_stream = wait.stream;
    return false;
  }
  s.waits = false;
  return true;
}

// The host is simulated lazily, when a step could begin: it issues up to that step. `next_issue` is the time of the
// next check, if only time is missing.
bool Machine::is_issued(Index agent, Place place, Picoseconds now, Picoseconds& next_issue) {
  AgentState& state = agents_[agent];
  while (!(place < state.cursor)) {
    if (issue_next(agent, now)) continue;
    const std::int32_t limit = workload_.agents[AgentId(agent)].run_ahead;
    if (!state.host_blocked && (limit == 0 || state.outstanding < limit))
      next_issue = std::min(next_issue, state.host_time + scripts_[agent].step(state.cursor).host);
    return false;
  }
  return true;
}

// Issues one more step if the host can have done so by now.
bool Machine::issue_next(Index agent, Picoseconds now) {
  AgentState& state = agents_[agent];
  const AgentScript& script = scripts_[agent];
  const std::int32_t limit = workload_.agents[AgentId(agent)].run_ahead;
  if (state.host_blocked || (limit > 0 && state.outstanding >= limit)) return false;
  const Step& step = script.step(state.cursor);
  if (state.host_time + step.host > now) return false;
  state.host_time += step.host;
  if (TaskTimes* t = times(agent, state.cursor)) t->issued = state.host_time;
  state.host_blocked = step.host_waits;
  if (limit > 0) ++state.outstanding;
  state.cursor = script.next_issued(state.cursor);
  return true;
}

// Counts a task that began. True: the host was at its run-ahead limit and can continue.
bool Machine::begun(Index agent, Picoseconds now) {
  AgentState& state = agents_[agent];
  const std::int32_t limit = workload_.agents[AgentId(agent)].run_ahead;
  while (state.cursor.play < scripts_[agent].plays() && issue_next(agent, now)) {
  }
  const bool at_limit = state.outstanding-- == limit;
  if (at_limit && !state.host_blocked) state.host_time = std::max(state.host_time, now);
  return at_limit;
}

Picoseconds Machine::next_event(Index agent) const {
  const AgentState& state = agents_[agent];
  Picoseconds next = kNever;
  for (unsigned mask = state.computing; mask != 0; mask &= mask - 1)
    next = std::min(next, streams_[layout_.first_stream[agent] + static_cast<Index>(std::countr_zero(mask))].end);
  return next;
}

void Machine::account(Index agent, Picoseconds now) {
  AgentState& state = agents_[agent];
  const bool busy = state.computing != 0;
  const bool occupied = (state.computing | state.meeting | state.communicating) != 0;
  if (busy != state.was_busy) {
    if (busy) {
      state.busy_since = now;
    } else {
      state.busy += now - state.busy_since;
    }
    state.was_busy = busy;
  }
  if (occupied != state.was_occupied) {
    if (occupied) {
      state.host_bound += now - state.idle_since;
    } else {
      state.idle_since = now;
    }
    state.was_occupied = occupied;
  }
}

void Machine::arrive(Index agent, Index stream, const Step& step) {
  AgentState& state = agents_[agent];
  const Index flow = flow_of(stream, step);
  if (step.kind == StepKind::Solo) {
    flows_[flow].work = step.subject;
    state.communicating = static_cast<StreamMask>(state.communicating | bit_of(step.stream));
    starting_.push_back(flow);
    return;
  }
  state.meeting = static_cast<StreamMask>(state.meeting | bit_of(step.stream));
  const Meeting& meeting = workload_.meetings[MeetingId(step.subject)];
  if ((arrived_[step.subject] += acts_for_[agent]) < meeting.parties) return;
  arrived_[step.subject] = 0;
  flows_[flow].work = meeting.work.index();
  for (const Layout::Party& party : parties(flow)) {
    if (!acts(party.agent)) continue;
    AgentState& other = agents_[party.agent];
    const StreamMask bit = bit_of(party.stream - layout_.first_stream[party.agent]);
    other.meeting = static_cast<StreamMask>(other.meeting & ~bit);
    other.communicating = static_cast<StreamMask>(other.communicating | bit);
  }
  starting_.push_back(flow);
}

}  // namespace weft::engine
