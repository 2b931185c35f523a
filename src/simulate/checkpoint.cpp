// Saving, restoring and comparing the state of the machine.
#include <algorithm>
#include <bit>

#include "simulate/machine.h"

namespace weft::engine {
namespace {

Place key_of(const AgentScript& script, Place place) {
  return place == kNowhere ? kNowhere : Place{place.play, script.task(place).index()};
}

Wide left_at(Wide remaining, std::int64_t speed, Picoseconds since, Picoseconds now) {
  return remaining - Wide{speed} * (now - since);
}

}  // namespace

void Checkpoint::copy(std::uint32_t from, std::uint32_t to, const Layout& layout) {
  agents[to] = agents[from];
  agenda[to] = agenda[from];
  std::copy(streams.begin() + layout.first_stream[from], streams.begin() + layout.first_stream[from + 1],
            streams.begin() + layout.first_stream[to]);
}

AgentScript Machine::exchange_script(Index agent, AgentScript script) {
  free_host_[agent] = script.host_is_free() && workload_.agents[AgentId(agent)].run_ahead == 0;
  return std::exchange(scripts_[agent], std::move(script));
}

// Visits every active communication once.
template <class Visit>
void Machine::each_flow(const Visit& visit) const {
  for (Index agent = 0; agent < agents_.size(); ++agent)
    for (unsigned mask = acts(agent) ? agents_[agent].communicating : 0; mask != 0; mask &= mask - 1) {
      const Index stream = layout_.first_stream[agent] + static_cast<Index>(std::countr_zero(mask));
      const Index flow = flow_of(stream, *steps_[stream]);
      if (flow < streams_.size() || parties(flow).front().agent == agent) visit(flow);
    }
}

Checkpoint Machine::save() {
  for (Index agent = 0; agent < agents_.size(); ++agent)
    if (acts(agent)) catch_up(agent);
  Checkpoint checkpoint;
  checkpoint.now = now_;
  checkpoint.agents = agents_;
  checkpoint.streams = streams_;
  checkpoint.agenda.resize(agents_.size());
  for (Index agent = 0; agent < agents_.size(); ++agent) {
    if (!acts(agent)) {
      checkpoint.copy(leader_[agent], agent, layout_);
      continue;
    }
    const AgentScript& script = scripts_[agent];
    AgentState& state = checkpoint.agents[agent];
    checkpoint.agenda[agent] = acts_at(agent);
    Place issued = state.cursor;
    state.cursor = script.previous_issued(issued) ? key_of(script, issued) : kNowhere;
    const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
    for (Index i = 0; i < streams_of(agent); ++i) {
      StreamState& stream = checkpoint.streams[layout_.first_stream[agent] + i];
      stream.end = head_end(layout_.first_stream[agent] + i);
      stream.done = key_of(script, stream.done);
      stream.head = (occupied >> i & 1) != 0 ? key_of(script, stream.head) : kNowhere;
    }
  }
  each_flow([&](Index flow) { checkpoint.flows.emplace_back(flow, flows_[flow]); });
  std::sort(checkpoint.flows.begin(), checkpoint.flows.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.arrival, a.first) < std::pair(b.second.arrival, b.first);
  });
  return checkpoint;
}

void Machine::restore_times(const Checkpoint& checkpoint, Picoseconds shift) {
  const std::size_t flows = streams_.size() + workload_.meetings.size();
  now_ = checkpoint.now + shift;
  agents_ = checkpoint.agents;
  streams_ = checkpoint.streams;
  rows_.assign(streams_.size(), {});
  flows_.assign(flows, {});
  is_slowed_.assign(flows, 0);
  arrived_.assign(workload_.meetings.size(), 0);
  tally_.done.resize(workload_.works.size());
  agenda_.reset(flows + agents_.size());
  for (Index agent = 0; agent < agents_.size(); ++agent) {
    if (!acts(agent)) continue;
    AgentState& state = agents_[agent];
    state.host_time += shift;
    if (state.next != kNever) state.next += shift;
    for (unsigned mask = state.computing; mask != 0; mask &= mask - 1) {
      StreamState& s = streams_[layout_.first_stream[agent] + static_cast<Index>(std::countr_zero(mask))];
      s.since += shift;
      s.end += shift;
    }
    if (checkpoint.agenda[agent] != kNever) agenda_.set(actor_of_agent(agent), checkpoint.agenda[agent] + shift);
  }
}

void Machine::put(Index agent, const Progress& progress) {
  AgentState& state = agents_[agent];
  const AgentScript& script = scripts_[agent];
  state.cursor = progress.cursor;
  const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
  state.idle = state.held = 0;
  for (Index i = 0; i < streams_of(agent); ++i) {
    const Index stream = layout_.first_stream[agent] + i;
    StreamState& s = streams_[stream];
    s.head = progress.heads[i];
    s.done = progress.done[i];
    s.waits = false;
    holds_[stream].streams = 0;
    steps_[stream] = nullptr;
    if (s.head.play == script.plays()) continue;
    steps_[stream] = &script.step(s.head);
    if ((occupied >> i & 1) == 0) state.idle = static_cast<StreamMask>(state.idle | 1u << i);
    if ((state.meeting >> i & 1) != 0) arrived_[steps_[stream]->subject] += acts_for_[agent];
  }
}

void Machine::restore_flows(const Checkpoint& checkpoint, Picoseconds shift) {
  if (options_.network == Network::Fair) {
    shares_.reset(workload_.links, flows_.size());
  } else {
    queues_.reset(workload_.links.size(), flows_.size());
  }
  arrivals_ = 0;
  for (const auto& [flow, saved] : checkpoint.flows) {
    FlowState& state = flows_[flow];
    state = saved;
    state.since += shift;
    if (state.phase != Phase::Queued) state.end += shift;
    const Work& work = work_of(flow);
    if (layout_.interference) find_slowest(flow);
    if (options_.network == Network::Fifo) {
      state.arrival = arrivals_++;
      queues_.join(flow, work.links);
    } else if (state.phase == Phase::Flowing) {
      const WorkId id(state.work);
      shares_.restore(flow, work.links, cap_of(state), layout_.link_limit[id], state.rate);
    }
    if (state.phase != Phase::Queued) agenda_.set(flow, state.end);
  }
}

void Machine::repeat(const Checkpoint& earlier, const Tally& then, std::int64_t times,
                     const std::vector<Progress>& to) {
  const Checkpoint here = save();
  restore(here, times * (here.now - earlier.now), [&](Index agent) -> const Progress& { return to[agent]; });
  for (Index agent = 0; agent < agents_.size(); ++agent)
    for (const auto sum : {&AgentState::busy_since, &AgentState::busy, &AgentState::idle_since, &AgentState::host_bound,
                           &AgentState::end})
      agents_[agent].*sum += times * (agents_[agent].*sum - earlier.agents[agent].*sum);
  tally_.tasks += times * (tally_.tasks - then.tasks);
  tally_.events += times * (tally_.events - then.events);
  for (const WorkId work : tally_.done.ids()) tally_.done[work] += times * (tally_.done[work] - then.done[work]);
}

bool Machine::equals(Index agent, const Checkpoint& checkpoint, Picoseconds shift) const {
  const AgentState& a = agents_[agent];
  const AgentState& b = checkpoint.agents[agent];
  if (a.computing != b.computing || a.meeting != b.meeting || a.communicating != b.communicating) return false;
  if (a.sm_share != b.sm_share || a.memory_share != b.memory_share || a.compute_speed != b.compute_speed ||
      a.communication_speed != b.communication_speed)
    return false;
  if (!host_is_free(agent) && !a.finished() &&
      (a.host_time != b.host_time + shift || a.outstanding != b.outstanding || a.host_blocked != b.host_blocked))
    return false;
  const Picoseconds acts = checkpoint.agenda[agent];
  if (acts_at(agent) != (acts == kNever ? kNever : acts + shift)) return false;
  for (unsigned mask = a.computing; mask != 0; mask &= mask - 1) {
    const Index stream = layout_.first_stream[agent] + static_cast<Index>(std::countr_zero(mask));
    const StreamState& s = streams_[stream];
    const StreamState& t = checkpoint.streams[stream];
    if (head_end(stream) != t.end + shift) return false;
    if (left_at(s.remaining, a.compute_speed, s.since, now_) !=
        left_at(t.remaining, b.compute_speed, t.since, checkpoint.now))
      return false;
  }
  return true;
}

bool Machine::equals(const Checkpoint& checkpoint, Picoseconds shift) {
  for (Index agent = 0; agent < agents_.size(); ++agent) {
    if (!acts(agent)) continue;
    catch_up(agent);
    if (!equals(agent, checkpoint, shift)) return false;
  }
  return equal_flows(checkpoint, shift);
}

bool Machine::is_at(Index agent, const Progress& progress) const {
  if (!host_is_free(agent) && agents_[agent].cursor != progress.cursor) return false;
  for (Index i = 0; i < streams_of(agent); ++i)
    if (streams_[layout_.first_stream[agent] + i].head != progress.heads[i]) return false;
  return true;
}

bool Machine::equal_flows(const Checkpoint& checkpoint, Picoseconds shift) const {
  std::size_t count = 0;
  each_flow([&](Index) { ++count; });
  if (count != checkpoint.flows.size()) return false;
  std::int64_t arrival = -1;  // the order of joining the queues is compared, not the numbers
  for (const auto& [flow, saved] : checkpoint.flows) {
    if (flow >= flows_.size()) return false;
    const FlowState& state = flows_[flow];
    if (state.phase != saved.phase || state.work != saved.work || state.rate != saved.rate) return false;
    if (state.end != saved.end + (state.phase == Phase::Queued ? 0 : shift)) return false;
    if (state.phase == Phase::Flowing && left_at(state.remaining, state.rate, state.since, now_) !=
                                             left_at(saved.remaining, saved.rate, saved.since, checkpoint.now))
      return false;
    if (options_.network == Network::Fifo && state.arrival <= arrival) return false;
    arrival = state.arrival;
  }
  return true;
}

}  // namespace weft::engine
