// Finding the run of an edited workload from the run before.
#include "simulate/delta_state.h"

namespace weft {

using namespace engine;

Stand Simulator::State::stand_at(const ScriptView& script, std::uint32_t agent, const Checkpoint& at) const {
  Stand stand;
  const AgentState& state = at.agents[agent];
  const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
  const std::uint32_t first = machine->layout().first_stream[agent];
  for (std::uint32_t i = 0; i < machine->streams_of(agent); ++i) {
    const StreamState& stream = at.streams[first + i];
    const Place done = script.place_of(stream.done);
    stand.done[i] = done;
    stand.heads[i] = (occupied >> i & 1) != 0 ? script.place_of(stream.head)
                     : done == kNowhere       ? script.first_from(0, static_cast<int>(i))
                                              : script.next_in_stream(done);
  }
  stand.cursor = {script.plays(), 0};
  if (!machine->host_is_free(agent)) {
    const Place issued = script.place_of(state.cursor);
    stand.cursor = issued == kNowhere ? script.issue().first_issued() : script.issue().next_issued(issued);
  }
  return stand;
}

Simulator::State::Reach Simulator::State::reach_at(const Edited& edited, const Stand& stand,
                                                   const Checkpoint& at) const {
  Reach reach;
  const AgentState& state = at.agents[edited.agent];
  const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
  for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
    reach.marks[i] = (occupied >> i & 1) != 0    ? mark_of(stand.heads[i])
                     : stand.done[i] == kNowhere ? kBeginning
                                                 : mark_of(stand.done[i]);
  Place issued = stand.cursor;
  reach.marks[kMaxStreams] = edited.before.issue().previous_issued(issued) ? mark_of(issued) : kBeginning;
  return reach;
}

bool Simulator::State::edit_between(const Edited& edited, const Reach& from, const Reach* to) const {
  for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
    if (edited.diff.edit_between(static_cast<int>(i), from.marks[i], to != nullptr ? to->marks[i] : kEnd)) return true;
  return !machine->host_is_free(edited.agent) &&
         edited.diff.edit_between(ScriptDiff::kHost, from.marks[kMaxStreams],
                                  to != nullptr ? to->marks[kMaxStreams] : kEnd);
}

std::optional<std::vector<Stand>> Simulator::State::stands_at(const std::vector<Edited>& all, const Checkpoint& at,
                                                              const Meet& since) const {
  std::vector<Stand> stands;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const Edited& edited = all[k];
    const AgentScript& script = machine->script(edited.agent);
    const ScriptView after(script, index[edited.agent].positions);
    const Stand old = stand_at(edited.before, edited.agent, at);
    Reach reach = reach_at(edited, old, at);
    Reach from;
    from.marks.fill(kBeginning);
    if (since.at != nullptr) from = reach_at(edited, stand_at(edited.before, edited.agent, *since.at), *since.at);
    const AgentState& state = at.agents[edited.agent];
    const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
    // A host with a limit is at work on its next step: when that is issued decides what the next begin lets it do.
    if (workload.agents[AgentId(edited.agent)].run_ahead > 0)
      reach.marks[kMaxStreams] =
          old.cursor.play == edited.before.plays() ? Mark{old.cursor.play, 0} : mark_of(old.cursor);
    // A step that waits for its issue alone has been promised a time, which counts on all the host issues until then.
    for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
      if ((occupied >> i & 1) == 0 && edited.before.can_begin(old, i))
        reach.marks[kMaxStreams] = std::max(reach.marks[kMaxStreams], mark_of(old.heads[i]));
    if (edit_between(edited, from, &reach)) return std::nullopt;

    Stand& stand = stands.emplace_back();
    unsigned fresh = 0;
    for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i) {
      // Taken out since, so that it ended before the runs met: what ended last in the new run stands for it.
      stand.done[i] = old.done[i] == kNowhere ? kNowhere : edited.diff.now(old.done[i]);
      if (old.done[i] != kNowhere && stand.done[i] == kNowhere) stand.done[i] = since.stands[k].done[i];
      if ((occupied >> i & 1) != 0) {
        stand.heads[i] = edited.diff.now(old.heads[i]);
        continue;
      }
      stand.heads[i] = stand.done[i] == kNowhere ? script.first_from(0, static_cast<int>(i))
                                                 : script.next_in_stream(stand.done[i], script.step(stand.done[i]));
      const bool same = old.heads[i].play == edited.before.plays()
                            ? stand.heads[i].play == script.plays()
                            : stand.heads[i] == edited.diff.now(old.heads[i]) &&
                                  !edited.diff.is_edited(static_cast<int>(i), old.heads[i]);
      if (!same) fresh |= 1u << i;
    }
    stand.cursor = {script.plays(), 0};
    if (!machine->host_is_free(edited.agent)) {
      Place issued = old.cursor;
      if (!edited.before.issue().previous_issued(issued)) {
        stand.cursor = script.first_issued();
      } else if (const Place now = edited.diff.now(issued); now != kNowhere) {
        stand.cursor = script.next_issued(now);
      } else {
        stand.cursor = since.stands[k].cursor;
      }
    }
    // Nothing is left to do for the agent now, but was: when its last task ended is not known.
    const bool left = std::any_of(stand.heads.begin(), stand.heads.begin() + machine->streams_of(edited.agent),
                                  [&](Place head) { return head.play != script.plays(); });
    if (!left && !state.finished()) return std::nullopt;
    // A step that was not there before must still have to wait, or it would have begun.
    for (; fresh != 0; fresh &= fresh - 1)
      if (after.can_begin(stand, static_cast<std::uint32_t>(std::countr_zero(fresh)))) return std::nullopt;
  }
  return stands;
}

std::optional<Stand> Simulator::State::stand_to_meet(const Edited& edited, const Checkpoint& at) const {
  const AgentScript& script = machine->script(edited.agent);
  const Stand old = stand_at(edited.before, edited.agent, at);
  const AgentState& state = at.agents[edited.agent];
  const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
  Stand stand;
  // The next of `stream` after `last`, if that is kept; else `next` if nothing came between them.
  const auto follow = [&](int stream, Place last, Place next, const auto& next_of, Place& result) {
    if (const Place now = edited.diff.now(last); now != kNowhere) {
      result = next_of(now);
      return true;
    }
    const bool at_end = next.play == edited.before.plays();
    if (edited.diff.edit_between(stream, mark_of(last), at_end ? kEnd : Mark{next.play, 2 * next.position + 1}))
      return false;
    result = at_end ? Place{script.plays(), 0} : edited.diff.now(next);
    return result != kNowhere;
  };
  for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i) {
    const int stream = static_cast<int>(i);
    if ((occupied >> i & 1) != 0) {
      if (edited.diff.is_edited(stream, old.heads[i])) return std::nullopt;
      stand.heads[i] = edited.diff.now(old.heads[i]);
    } else if (old.done[i] == kNowhere) {
      stand.heads[i] = script.first_from(0, stream);
    } else if (!follow(
                   stream, old.done[i], old.heads[i],
                   [&](Place now) { return script.next_in_stream(now, script.step(now)); }, stand.heads[i])) {
      return std::nullopt;
    }
  }
  stand.cursor = {script.plays(), 0};
  if (machine->host_is_free(edited.agent)) return stand;
  Place issued = old.cursor;
  if (!edited.before.issue().previous_issued(issued)) {
    stand.cursor = script.first_issued();
  } else if (!follow(
                 ScriptDiff::kHost, issued, old.cursor, [&](Place now) { return script.next_issued(now); },
                 stand.cursor)) {
    return std::nullopt;
  }
  return stand;
}

std::optional<std::vector<Stand>> Simulator::State::stands_to_meet(const std::vector<Edited>& all,
                                                                   const Checkpoint& at) const {
  std::vector<Stand> stands;
  for (const Edited& edited : all) {
    const std::optional<Stand> stand = stand_to_meet(edited, at);
    if (!stand) return std::nullopt;
    stands.push_back(*stand);
  }
  return stands;
}

std::optional<Simulator::State::Probe> Simulator::State::make_probe(const std::vector<Edited>& all,
                                                                    const Checkpoint& at) const {
  const auto first_where = [&](const auto& occupied) {
    return static_cast<std::uint32_t>(std::find_if(at.agents.begin(), at.agents.end(), occupied) - at.agents.begin());
  };
  std::uint32_t agent = first_where([](const AgentState& state) { return state.computing != 0; });
  const bool computes = agent < at.agents.size();
  if (!computes)
    agent = first_where([](const AgentState& state) { return (state.meeting | state.communicating) != 0; });
  if (agent == at.agents.size()) return std::nullopt;
  const AgentState& state = at.agents[agent];
  const unsigned streams = computes ? state.computing : static_cast<unsigned>(state.meeting | state.communicating);
  const auto i = static_cast<std::uint32_t>(std::countr_zero(streams));
  const Edited* const edited = find(all, agent);
  const std::optional<Stand> stand =
      edited != nullptr ? stand_to_meet(*edited, at)
                        : std::optional(stand_at({machine->script(agent), index[agent].positions}, agent, at));
  if (!stand) return std::nullopt;
  return Probe{machine->layout().first_stream[agent] + i, stand->heads[i], computes};
}

bool Simulator::State::replay(const std::vector<Edited>& all, const std::vector<Entry>& old,
                              std::optional<Picoseconds> bound, std::int64_t& replayed) {
  const std::vector<Picoseconds> old_ends = ends;
  machine->let_act(twins.leaders());
  // Who has come to an edit has come to it later too.
  Meet meet;
  std::size_t low = 0, high = old.size();
  std::vector<Stand> stands;
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    if (auto found = stands_at(all, *old[middle].state, meet)) {
      low = middle;
      stands = std::move(*found);
    } else {
      high = middle;
    }
  }
  if (low == 0) {
    machine->reset();
  } else {
    machine->restore(*old[low].state, old[low].shift, stand_of(all, stands, *old[low].state));
  }
  for (std::uint32_t agent = 0; agent < ends.size(); ++agent)
    if (low > 0 && machine->agent(agent).finished()) machine->set_end(agent, old_ends[agent]);
  entries.assign(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(low) + 1);
  entries.back().gap = true;

  const std::int64_t start = machine->tasks();
  std::size_t candidate = low + 1;
  std::optional<Probe> probe;
  while (!machine->stopped()) {
    machine->step_time();
    replayed = machine->tasks() - start;
    if (passes(bound)) return false;
    while (candidate < old.size()) {
      const Checkpoint& at = *old[candidate].state;
      if (!probe) probe = make_probe(all, at);
      if (!probe) {
        ++candidate;
        continue;
      }
      machine->catch_up(machine->layout().agent_of[probe->stream]);
      const StreamState& stream = machine->stream(probe->stream);
      if (probe->head < stream.head) {  // past it, and never was there
        probe.reset();
        ++candidate;
        continue;
      }
      const Picoseconds shift = machine->now() - at.now;
      if (stream.head != probe->head ||
          (probe->computes && machine->head_end(probe->stream) != at.streams[probe->stream].end + shift) ||
          !machine->equals(at, shift))
        break;
      const auto meeting = stands_to_meet(all, at);
      if (meeting && !machine->stands(stand_of(all, *meeting, at))) break;
      probe.reset();
      if (!meeting) {
        ++candidate;
        continue;
      }
      if (skip(all, old, old_ends, candidate, shift)) return true;
      entries.back().gap = true;
    }
  }
  if (!machine->finished()) return false;
  for (std::uint32_t agent = 0; agent < ends.size(); ++agent) ends[agent] = machine->agent(agent).end;
  return true;
}

std::int64_t Simulator::State::fill_gaps() {
  if (std::none_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.gap; })) return 0;
  const std::vector<Entry> known = std::move(entries);
  const std::int64_t start = machine->tasks();
  machine->let_act(twins.leaders());
  entries.clear();
  for (std::size_t i = 0; i < known.size(); ++i) {
    const Checkpoint& from = *known[i].state;
    entries.push_back({known[i].state, known[i].shift});
    if (!known[i].gap) continue;
    if (i == 0) {
      machine->reset();
    } else {
      machine->restore(from, known[i].shift, stand_of({}, {}, from));
    }
    const Picoseconds end = i + 1 < known.size() ? known[i + 1].state->now + known[i + 1].shift : kNever;
    std::int64_t saved = machine->tasks();
    while (!machine->stopped()) {
      machine->step_time();
      if (machine->now() >= end) break;
      if (machine->tasks() - saved < interval()) continue;
      entries.push_back({std::make_shared<const Checkpoint>(machine->save()), 0});
      saved = machine->tasks();
    }
  }
  return machine->tasks() - start;
}

bool Simulator::State::skip(const std::vector<Edited>& all, const std::vector<Entry>& old,
                            const std::vector<Picoseconds>& old_ends, std::size_t& candidate, Picoseconds shift) {
  Meet meet{old[candidate].state.get(), {}};
  bool more = false;
  for (const Edited& edited : all) {
    Stand& stand = meet.stands.emplace_back();
    const std::uint32_t first = machine->layout().first_stream[edited.agent];
    for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i) {
      stand.heads[i] = machine->stream(first + i).head;
      stand.done[i] = machine->stream(first + i).done;
    }
    stand.cursor = machine->agent(edited.agent).cursor;
    const Stand there = stand_at(edited.before, edited.agent, *meet.at);
    more |= edit_between(edited, reach_at(edited, there, *meet.at), nullptr);
  }
  // What this checkpoint is moved by from the time it was taken; others may have been moved by something else before.
  const Picoseconds further = shift - old[candidate].shift;
  std::size_t last = old.size() - 1;
  std::vector<Stand> stands;
  if (more) {
    std::size_t low = candidate, high = old.size();
    while (high - low > 1) {
      const std::size_t middle = (low + high) / 2;
      if (auto found = stands_at(all, *old[middle].state, meet)) {
        low = middle;
        stands = std::move(*found);
      } else {
        high = middle;
      }
    }
    last = low;
  }
  for (std::size_t i = candidate; i <= last; ++i)
    entries.push_back({rename(all, meet, old[i].state), old[i].shift + further, old[i].gap});
  std::vector<Picoseconds> new_ends = old_ends;
  for (std::uint32_t agent = 0; agent < new_ends.size(); ++agent)
    new_ends[agent] = machine->agent(agent).finished() ? machine->agent(agent).end : new_ends[agent] + further;
  if (!more) {
    ends = std::move(new_ends);
    return true;
  }
  if (last > candidate) {
    machine->restore(*old[last].state, old[last].shift + further, stand_of(all, stands, *old[last].state));
    for (std::uint32_t agent = 0; agent < new_ends.size(); ++agent)
      if (machine->agent(agent).finished()) machine->set_end(agent, new_ends[agent]);
  }
  candidate = last + 1;
  return false;
}

std::shared_ptr<const Checkpoint> Simulator::State::rename(const std::vector<Edited>& all, const Meet& meet,
                                                           const std::shared_ptr<const Checkpoint>& state) const {
  std::shared_ptr<Checkpoint> copy;
  const auto mutable_copy = [&]() -> Checkpoint& {
    if (!copy) copy = std::make_shared<Checkpoint>(*state);
    return *copy;
  };
  for (std::size_t k = 0; k < all.size(); ++k) {
    const Edited& edited = all[k];
    const AgentScript& script = machine->script(edited.agent);
    const auto key = [&](Place place) {
      return place == kNowhere ? kNowhere : Place{place.play, script.task(place).index()};
    };
    const auto is_gone = [&](Place old_key) {
      const Place place = edited.before.place_of(old_key);
      return place != kNowhere && edited.diff.now(place) == kNowhere;
    };
    const std::uint32_t first = machine->layout().first_stream[edited.agent];
    for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
      if (is_gone(state->streams[first + i].done)) mutable_copy().streams[first + i].done = key(meet.stands[k].done[i]);
    if (!machine->host_is_free(edited.agent) && is_gone(state->agents[edited.agent].cursor)) {
      Place issued = meet.stands[k].cursor;
      mutable_copy().agents[edited.agent].cursor = script.previous_issued(issued) ? key(issued) : kNowhere;
    }
  }
  if (copy)
    for (const AgentId agent : twins.leaders().ids())
      if (!twins.leads(agent)) copy->copy(twins.leaders()[agent].index(), agent.index(), machine->layout());
  return copy ? std::shared_ptr<const Checkpoint>(std::move(copy)) : state;
}

}  // namespace weft
