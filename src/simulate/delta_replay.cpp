// Finding the run of an edited workload from the previous run.
#include "simulate/delta_state.h"

namespace weft {

using namespace engine;

Progress Simulator::State::progress_at(const ScriptView& script, std::uint32_t agent, const Checkpoint& at) const {
  Progress progress;
  const AgentState& state = at.agents[agent];
  const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
  const std::uint32_t first = machine->layout().first_stream[agent];
  for (std::uint32_t i = 0; i < machine->streams_of(agent); ++i) {
    const StreamState& stream = at.streams[first + i];
    const Place done = script.place_of(stream.done);
    progress.done[i] = done;
    progress.heads[i] = (occupied >> i & 1) != 0 ? script.place_of(stream.head)
                        : done == kNowhere       ? script.first_from(0, static_cast<int>(i))
                                                 : script.next_in_stream(done);
  }
  progress.cursor = {script.plays(), 0};
  if (!machine->host_is_free(agent)) {
    const Place issued = script.place_of(state.cursor);
    progress.cursor = issued == kNowhere ? script.issue().first_issued() : script.issue().next_issued(issued);
  }
  return progress;
}

Simulator::State::Reach Simulator::State::reach_at(const Edited& edited, const Progress& progress,
                                                   const Checkpoint& at) const {
  Reach reach;
  const AgentState& state = at.agents[edited.agent];
  const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
  for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
    reach.marks[i] = (occupied >> i & 1) != 0       ? mark_of(progress.heads[i])
                     : progress.done[i] == kNowhere ? kBeginning
                                                    : mark_of(progress.done[i]);
  Place issued = progress.cursor;
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

std::optional<std::vector<Progress>> Simulator::State::all_progress_at(const std::vector<Edited>& all,
                                                                       const Checkpoint& at,
                                                                       const SyncPoint& since) const {
  std::vector<Progress> all_progress;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const Edited& edited = all[k];
    const AgentScript& script = machine->script(edited.agent);
    const ScriptView after(script, index[edited.agent].positions);
    const Progress old = progress_at(edited.before, edited.agent, at);
    Reach reach = reach_at(edited, old, at);
    Reach from;
    from.marks.fill(kBeginning);
    if (since.at != nullptr) from = reach_at(edited, progress_at(edited.before, edited.agent, *since.at), *since.at);
    const AgentState& state = at.agents[edited.agent];
    const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
    // With a run-ahead limit the host is already working on its next step, so that step counts as reached.
    if (workload.agents[AgentId(edited.agent)].run_ahead > 0)
      reach.marks[kMaxStreams] =
          old.cursor.play == edited.before.plays() ? Mark{old.cursor.play, 0} : mark_of(old.cursor);
    // The start time of a step that waits only for its issue depends on all steps issued until then.
    for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i)
      if ((occupied >> i & 1) == 0 && edited.before.can_begin(old, i))
        reach.marks[kMaxStreams] = std::max(reach.marks[kMaxStreams], mark_of(old.heads[i]));
    if (edit_between(edited, from, &reach)) return std::nullopt;

    Progress& progress = all_progress.emplace_back();
    unsigned fresh = 0;
    for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i) {
      // The last ended step was removed by the edit: use the one that ended last in the new run.
      progress.done[i] = old.done[i] == kNowhere ? kNowhere : edited.diff.now(old.done[i]);
      if (old.done[i] != kNowhere && progress.done[i] == kNowhere) progress.done[i] = since.all_progress[k].done[i];
      if ((occupied >> i & 1) != 0) {
        progress.heads[i] = edited.diff.now(old.heads[i]);
        continue;
      }
      progress.heads[i] = progress.done[i] == kNowhere
                              ? script.first_from(0, static_cast<int>(i))
                              : script.next_in_stream(progress.done[i], script.step(progress.done[i]));
      const bool same = old.heads[i].play == edited.before.plays()
                            ? progress.heads[i].play == script.plays()
                            : progress.heads[i] == edited.diff.now(old.heads[i]) &&
                                  !edited.diff.is_edited(static_cast<int>(i), old.heads[i]);
      if (!same) fresh |= 1u << i;
    }
    progress.cursor = {script.plays(), 0};
    if (!machine->host_is_free(edited.agent)) {
      Place issued = old.cursor;
      if (!edited.before.issue().previous_issued(issued)) {
        progress.cursor = script.first_issued();
      } else if (const Place now = edited.diff.now(issued); now != kNowhere) {
        progress.cursor = script.next_issued(now);
      } else {
        progress.cursor = since.all_progress[k].cursor;
      }
    }
    // The agent has no steps left now, but had some in the old run: the end of its last task is unknown.
    const bool left = std::any_of(progress.heads.begin(), progress.heads.begin() + machine->streams_of(edited.agent),
                                  [&](Place head) { return head.play != script.plays(); });
    if (!left && !state.finished()) return std::nullopt;
    // A new head must still have unsatisfied waits, or it would have begun.
    for (; fresh != 0; fresh &= fresh - 1)
      if (after.can_begin(progress, static_cast<std::uint32_t>(std::countr_zero(fresh)))) return std::nullopt;
  }
  return all_progress;
}

std::optional<Progress> Simulator::State::progress_to_sync(const Edited& edited, const Checkpoint& at) const {
  const AgentScript& script = machine->script(edited.agent);
  const Progress old = progress_at(edited.before, edited.agent, at);
  const AgentState& state = at.agents[edited.agent];
  const unsigned occupied = static_cast<unsigned>(state.computing | state.meeting | state.communicating);
  Progress progress;
  // The step of `stream` after `last` if `last` is kept; else `next` if no step was inserted between them.
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
      progress.heads[i] = edited.diff.now(old.heads[i]);
    } else if (old.done[i] == kNowhere) {
      progress.heads[i] = script.first_from(0, stream);
    } else if (!follow(
                   stream, old.done[i], old.heads[i],
                   [&](Place now) { return script.next_in_stream(now, script.step(now)); }, progress.heads[i])) {
      return std::nullopt;
    }
  }
  progress.cursor = {script.plays(), 0};
  if (machine->host_is_free(edited.agent)) return progress;
  Place issued = old.cursor;
  if (!edited.before.issue().previous_issued(issued)) {
    progress.cursor = script.first_issued();
  } else if (!follow(
                 ScriptDiff::kHost, issued, old.cursor, [&](Place now) { return script.next_issued(now); },
                 progress.cursor)) {
    return std::nullopt;
  }
  return progress;
}

std::optional<std::vector<Progress>> Simulator::State::all_progress_to_sync(const std::vector<Edited>& all,
                                                                            const Checkpoint& at) const {
  std::vector<Progress> all_progress;
  for (const Edited& edited : all) {
    const std::optional<Progress> progress = progress_to_sync(edited, at);
    if (!progress) return std::nullopt;
    all_progress.push_back(*progress);
  }
  return all_progress;
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
  const std::optional<Progress> progress =
      edited != nullptr ? progress_to_sync(*edited, at)
                        : std::optional(progress_at({machine->script(agent), index[agent].positions}, agent, at));
  if (!progress) return std::nullopt;
  return Probe{machine->layout().first_stream[agent] + i, progress->heads[i], computes};
}

bool Simulator::State::replay(const std::vector<Edited>& all, const std::vector<Entry>& old,
                              std::optional<Picoseconds> bound, std::int64_t& replayed) {
  const std::vector<Picoseconds> old_ends = ends;
  machine->set_leaders(twins.leaders());
  // Binary search: an agent that has reached an edit has reached it at all later checkpoints.
  SyncPoint sync;
  std::size_t low = 0, high = old.size();
  std::vector<Progress> all_progress;
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    if (auto found = all_progress_at(all, *old[middle].state, sync)) {
      low = middle;
      all_progress = std::move(*found);
    } else {
      high = middle;
    }
  }
  if (low == 0) {
    machine->reset();
  } else {
    machine->restore(*old[low].state, old[low].shift, progress_of(all, all_progress, *old[low].state));
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
      if (probe->head < stream.head) {  // past it without having been at it
        probe.reset();
        ++candidate;
        continue;
      }
      const Picoseconds shift = machine->now() - at.now;
      if (stream.head != probe->head ||
          (probe->computes && machine->head_end(probe->stream) != at.streams[probe->stream].end + shift) ||
          !machine->equals(at, shift))
        break;
      const auto expected = all_progress_to_sync(all, at);
      if (expected && !machine->is_at(progress_of(all, *expected, at))) break;
      probe.reset();
      if (!expected) {
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
  machine->set_leaders(twins.leaders());
  entries.clear();
  for (std::size_t i = 0; i < known.size(); ++i) {
    const Checkpoint& from = *known[i].state;
    entries.push_back({known[i].state, known[i].shift});
    if (!known[i].gap) continue;
    if (i == 0) {
      machine->reset();
    } else {
      machine->restore(from, known[i].shift, progress_of({}, {}, from));
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
  SyncPoint sync{old[candidate].state.get(), {}};
  bool more = false;
  for (const Edited& edited : all) {
    Progress& progress = sync.all_progress.emplace_back();
    const std::uint32_t first = machine->layout().first_stream[edited.agent];
    for (std::uint32_t i = 0; i < machine->streams_of(edited.agent); ++i) {
      progress.heads[i] = machine->stream(first + i).head;
      progress.done[i] = machine->stream(first + i).done;
    }
    progress.cursor = machine->agent(edited.agent).cursor;
    const Progress there = progress_at(edited.before, edited.agent, *sync.at);
    more |= edit_between(edited, reach_at(edited, there, *sync.at), nullptr);
  }
  // The shift of this checkpoint relative to its old one; other checkpoints may have other old shifts.
  const Picoseconds further = shift - old[candidate].shift;
  std::size_t last = old.size() - 1;
  std::vector<Progress> all_progress;
  if (more) {
    std::size_t low = candidate, high = old.size();
    while (high - low > 1) {
      const std::size_t middle = (low + high) / 2;
      if (auto found = all_progress_at(all, *old[middle].state, sync)) {
        low = middle;
        all_progress = std::move(*found);
      } else {
        high = middle;
      }
    }
    last = low;
  }
  for (std::size_t i = candidate; i <= last; ++i)
    entries.push_back({rename(all, sync, old[i].state), old[i].shift + further, old[i].gap});
  std::vector<Picoseconds> new_ends = old_ends;
  for (std::uint32_t agent = 0; agent < new_ends.size(); ++agent)
    new_ends[agent] = machine->agent(agent).finished() ? machine->agent(agent).end : new_ends[agent] + further;
  if (!more) {
    ends = std::move(new_ends);
    return true;
  }
  if (last > candidate) {
    machine->restore(*old[last].state, old[last].shift + further, progress_of(all, all_progress, *old[last].state));
    for (std::uint32_t agent = 0; agent < new_ends.size(); ++agent)
      if (machine->agent(agent).finished()) machine->set_end(agent, new_ends[agent]);
  }
  candidate = last + 1;
  return false;
}

std::shared_ptr<const Checkpoint> Simulator::State::rename(const std::vector<Edited>& all, const SyncPoint& sync,
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
      if (is_gone(state->streams[first + i].done))
        mutable_copy().streams[first + i].done = key(sync.all_progress[k].done[i]);
    if (!machine->host_is_free(edited.agent) && is_gone(state->agents[edited.agent].cursor)) {
      Place issued = sync.all_progress[k].cursor;
      mutable_copy().agents[edited.agent].cursor = script.previous_issued(issued) ? key(issued) : kNowhere;
    }
  }
  if (copy)
    for (const AgentId agent : twins.leaders().ids())
      if (!twins.leads(agent)) copy->copy(twins.leaders()[agent].index(), agent.index(), machine->layout());
  return copy ? std::shared_ptr<const Checkpoint>(std::move(copy)) : state;
}

}  // namespace weft
