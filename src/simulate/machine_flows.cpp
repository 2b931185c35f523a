// The machine's communications: their phases, their rates, and how they and computations slow each other.
#include <algorithm>
#include <bit>
#include <limits>

#include "simulate/machine.h"

namespace weft::engine {

void Machine::finish_phase(Index flow) {
  FlowState& state = flows_[flow];
  ++tally_.events;
  if (state.phase == Phase::Latency && work_of(flow).bytes > 0) {
    joining_.push_back(flow);
  } else {
    end_communication(flow);
  }
}

void Machine::end_communication(Index flow) {
  FlowState& state = flows_[flow];
  const Work& work = work_of(flow);
  ++tally_.done[WorkId(state.work)];
  if (state.phase == Phase::Flowing) {
    shares_.remove(flow);
  } else if (state.phase == Phase::Holding) {
    queues_.leave(flow, [&](Index next) {
      FlowState& other = flows_[next];
      other.phase = Phase::Holding;
      other.since = now_;
      other.end = now_ + other.end;  // its isolated time, until now
      agenda_.set(next, other.end);
    });
  }
  state.phase = Phase::None;
  const auto leave = [&](Index agent, Index stream) {
    AgentState& a = agents_[agent];
    const StreamMask bit = bit_of(stream - layout_.first_stream[agent]);
    a.communicating = static_cast<StreamMask>(a.communicating & ~bit);
    if (layout_.interference) {
      a.sm_share -= work.sm_share;
      a.memory_share -= work.memory_share;
      mark(agent);
    }
    end_step(agent, stream, now_);
    agenda_.set(actor_of_agent(agent), now_);
  };
  if (flow < streams_.size()) {
    leave(layout_.agent_of[flow], flow);
  } else {
    for (const Layout::Party& party : parties(flow))
      if (acts(party.agent)) leave(party.agent, party.stream);
  }
}

// Applies the events of this time: communications start, then speeds and rates are updated.
void Machine::settle() {
  if (!starting_.empty()) {
    // The order must not depend on the numbers of meetings and works, which differ after edits.
    if (options_.network == Network::Fifo && starting_.size() > 1) {
      const auto turn = [&](Index flow) {
        const Index stream = flow < streams_.size() ? flow : parties(flow).front().stream;
        return std::pair(layout_.agent_of[stream], streams_[stream].head);
      };
      std::sort(starting_.begin(), starting_.end(), [&](Index a, Index b) { return turn(a) < turn(b); });
    }
    for (const Index flow : starting_) start(flow);
  }
  if (!marked_.empty()) {
    for (const Index agent : marked_) recompute_speeds(agent);
    marked_.clear();
  }
  if (layout_.interference)
    for (const Index flow : starting_) find_slowest(flow);
  starting_.clear();
  if (!joining_.empty()) {
    for (const Index flow : joining_) join_links(flow);
    joining_.clear();
  }
  if (!slowed_.empty()) {
    for (const Index flow : slowed_) apply_speed(flow);
    slowed_.clear();
  }
  if (shares_.changed())
    for (const Index flow : shares_.update()) set_rate(flow, shares_.rate(flow));
}

void Machine::start(Index flow) {
  FlowState& state = flows_[flow];
  const Work& work = work_of(flow);
  state.since = now_;
  state.rate = 0;
  state.slowest = kOne;
  state.at_slowest = 0;
  if (options_.network == Network::Fifo) {
    const Picoseconds time =
        work.bytes == 0 ? work.fixed : work.fixed + time_at_rate(work.bytes * kPerByte, cap_of(state));
    state.arrival = arrivals_++;
    if (queues_.join(flow, work.links)) {
      state.phase = Phase::Holding;
      state.end = now_ + time;
      agenda_.set(flow, state.end);
    } else {
      state.phase = Phase::Queued;
      state.end = time;
    }
    return;
  }
  if (layout_.interference) {
    const auto load = [&](Index agent) {
      agents_[agent].sm_share += work.sm_share;
      agents_[agent].memory_share += work.memory_share;
      mark(agent);
    };
    if (flow < streams_.size()) {
      load(layout_.agent_of[flow]);
    } else {
      for (const Layout::Party& party : parties(flow))
        if (acts(party.agent)) load(party.agent);
    }
  }
  state.phase = Phase::Latency;
  state.end = now_ + work.fixed;
  if (work.fixed == 0 && work.bytes > 0) {
    joining_.push_back(flow);
  } else {
    agenda_.set(flow, state.end);
  }
}

void Machine::join_links(Index flow) {
  FlowState& state = flows_[flow];
  const Work& work = work_of(flow);
  state.phase = Phase::Flowing;
  state.remaining = work.bytes * kPerByte;
  state.since = now_;
  state.rate = 0;
  shares_.add(flow, work.links, cap_of(state), layout_.link_limit[WorkId(state.work)]);
}

void Machine::set_rate(Index flow, std::int64_t rate) {
  FlowState& state = flows_[flow];
  state.remaining -= Wide{state.rate} * (now_ - state.since);
  state.since = now_;
  state.rate = rate;
  state.end = now_ + time_at_rate(state.remaining, rate);
  agenda_.set(flow, state.end);
}

// ---- interference ----

void Machine::mark(Index agent) {
  if (!layout_.interference || is_marked_[agent] != 0) return;
  is_marked_[agent] = 1;
  marked_.push_back(agent);
}

void Machine::recompute_speeds(Index agent) {
  is_marked_[agent] = 0;
  end_rows(agent);
  AgentState& state = agents_[agent];
  const Index first = layout_.first_stream[agent];
  DeviceLoad computing;
  for (unsigned mask = state.computing; mask != 0; mask &= mask - 1) {
    const Step& step = *steps_[first + static_cast<Index>(std::countr_zero(mask))];
    const Work& work = workload_.works[WorkId(step.subject)];
    computing.sm += work.sm_share;
    computing.memory += work.memory_share;
    computing.waves = mask == state.computing && (mask & (mask - 1)) == 0 ? work.waves : 0;
  }
  computing.sm = std::min(computing.sm, kOne);
  computing.memory = std::min(computing.memory, kOne);
  const Interference& law = workload_.interference[workload_.agents[AgentId(agent)].interference];
  std::int32_t compute = kOne, communication = kOne;
  if (state.communicating != 0) {
    const DeviceLoad communicating{state.sm_share, state.memory_share};
    compute = compute_speed(law, computing, communicating);
    communication = communication_speed(law, computing, communicating);
  }
  if (compute != state.compute_speed) {
    for (unsigned mask = state.computing; mask != 0; mask &= mask - 1) {
      StreamState& s = streams_[first + static_cast<Index>(std::countr_zero(mask))];
      s.remaining -= Wide{state.compute_speed} * (now_ - s.since);
      s.since = now_;
      s.end = now_ + time_at_rate(s.remaining, compute);
    }
    state.compute_speed = compute;
    const Picoseconds next = std::min(state.next, next_event(agent));
    if (next != kNever) agenda_.set(actor_of_agent(agent), next);
  }
  if (communication != state.communication_speed) set_communication_speed(agent, communication);
}

// Maintains the least speed of each of the agent's communications, and the number of agents with it, incrementally.
void Machine::set_communication_speed(Index agent, std::int32_t speed) {
  AgentState& state = agents_[agent];
  const std::int32_t before = std::exchange(state.communication_speed, speed);
  const Index first = layout_.first_stream[agent];
  for (unsigned mask = state.communicating; mask != 0; mask &= mask - 1) {
    const Index stream = first + static_cast<Index>(std::countr_zero(mask));
    const Index flow = flow_of(stream, *steps_[stream]);
    FlowState& f = flows_[flow];
    if (f.at_slowest == 0 && is_slowed_[flow] == 0) continue;  // just started: `find_slowest` computes it
    if (before == f.slowest && f.at_slowest > 0) --f.at_slowest;
    if (speed < f.slowest) {
      f.slowest = speed;
      f.at_slowest = 1;
    } else if (speed == f.slowest) {
      ++f.at_slowest;
    }
    if (is_slowed_[flow] == 0) {
      is_slowed_[flow] = 1;
      slowed_.push_back(flow);
    }
  }
}

void Machine::find_slowest(Index flow) {
  FlowState& state = flows_[flow];
  state.slowest = std::numeric_limits<std::int32_t>::max();
  const auto look = [&](Index agent) {
    const std::int32_t speed = agents_[agent].communication_speed;
    if (speed < state.slowest) {
      state.slowest = speed;
      state.at_slowest = 0;
    }
    state.at_slowest += speed == state.slowest ? 1 : 0;
  };
  if (flow < streams_.size()) {
    look(layout_.agent_of[flow]);
  } else {
    for (const Layout::Party& party : parties(flow))
      if (acts(party.agent)) look(party.agent);
  }
}

void Machine::apply_speed(Index flow) {
  is_slowed_[flow] = 0;
  FlowState& state = flows_[flow];
  if (state.at_slowest == 0) find_slowest(flow);
  if (state.phase != Phase::Flowing) return;
  shares_.set_cap(flow, cap_of(state));
}

}  // namespace weft::engine
