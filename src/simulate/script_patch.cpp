#include "simulate/script_patch.h"

#include <algorithm>
#include <cstring>

namespace weft::engine {
namespace {

// Of entries with equal keys the first is what was there before.
template <class Entry, class Key>
void keep_first(std::vector<Entry>& entries, const Key& key) {
  const auto less = [&](const Entry& a, const Entry& b) { return key(a) < key(b); };
  if (entries.size() > 64)
    std::stable_sort(entries.begin(), entries.end(), less);
  else  // without asking for memory
    for (auto it = entries.begin(); it != entries.end(); ++it)
      std::rotate(std::upper_bound(entries.begin(), it, *it, less), it, it + 1);
  entries.erase(
      std::unique(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) { return key(a) == key(b); }),
      entries.end());
}

template <class Entry, class Value, class Key>
const Entry* find_in(const std::vector<Entry>& entries, const Value& value, const Key& key) {
  const auto at = std::lower_bound(entries.begin(), entries.end(), value,
                                   [&](const Entry& entry, const Value& wanted) { return key(entry) < wanted; });
  return at != entries.end() && key(*at) == value ? &*at : nullptr;
}

constexpr std::uint32_t kMoreRoom = 64;  // at once, where there is not enough

constexpr auto by_place = [](const auto& touched) { return touched.at; };
constexpr auto by_stream = [](const auto& first) { return std::pair(first.script, first.stream); };
constexpr auto by_task = [](const auto& position) { return std::pair(position.script, position.task); };

}  // namespace

ScriptIndex::ScriptIndex(const Agent& agent, TaskPositions found) : positions(std::move(found)) {
  resize(agent.tasks.size());
  find_followers(agent);
}

void ScriptIndex::find_followers(const Agent& agent) {
  for (std::vector<TaskId>& each : followers) each.clear();
  for (const std::vector<TaskId>& body : agent.bodies)
    for (const TaskId id : body)
      for (const TaskId after : agent.tasks[id].after) followers[after.index()].push_back(id);
}

void ScriptIndex::resize(std::size_t tasks) {
  if (tasks <= marks.size()) return;
  followers.resize(tasks);
  marks.resize(tasks, 0);
  for (std::vector<std::uint32_t>& each : positions) each.resize(tasks, kNoStep);
}

Step& ScriptPatch::touch(AgentScript& script, At at) {
  Script& in = script.scripts_[at.script];
  touched_.push_back({at, in.steps[at.position], in.tasks[at.position]});
  return in.steps[at.position];
}

void ScriptPatch::set_task(AgentScript& script, ScriptIndex& index, At at, TaskId task) {
  Script& in = script.scripts_[at.script];
  TaskId& here = in.tasks[at.position];
  const TaskId moved = task.valid() ? task : here;
  std::vector<std::uint32_t>& positions = index.positions[at.script];
  positions_.push_back({at.script, moved, positions[moved.index()]});
  positions[moved.index()] = task.valid() ? at.position : kNoStep;
  here = task;
  // What was taken out is looked at until `release`.
  in.streams[at.position] = task.valid() ? in.steps[at.position].stream : Script::kReserved;
}

void ScriptPatch::follow(ScriptIndex& index, TaskId id, const Task& task) {
  for (const TaskId after : task.after) {
    index.followers[after.index()].push_back(id);
    followed_.push_back(after);
  }
}

std::uint32_t ScriptPatch::before_in_stream(const Script& script, std::uint32_t position, int stream) const {
  for (std::uint32_t end = position; end > 0;) {
    const std::uint32_t hop = (end - 1) / script.hop_places, begin = hop * script.hop_places;
    if ((script.hops[hop].streams >> stream & 1) != 0)
      if (const void* const found = memrchr(script.streams.data() + begin, stream, end - begin))
        return static_cast<std::uint32_t>(static_cast<const std::uint8_t*>(found) - script.streams.data());
    end = begin;
  }
  return kNoStep;
}

// `before`, or the beginning of the stream, is followed by `to`.
void ScriptPatch::link(AgentScript& script, std::uint32_t which, std::uint32_t before, int stream, std::uint32_t to) {
  if (before != kNoStep) {
    touch(script, {which, before}).next = to;
  } else {
    std::uint32_t& first = script.scripts_[which].first[static_cast<std::size_t>(stream)];
    firsts_.push_back({which, stream, std::exchange(first, to)});
  }
}

bool ScriptPatch::change(AgentScript& script, ScriptIndex& index, const Workload& workload, TaskId id,
                         const Task& now) {
  if (now.host != 0 || now.host_waits) return false;
  bool stands = false;
  for (std::uint32_t i = 0; i < script.scripts_.size(); ++i) {
    const std::uint32_t position = index.positions[i][id.index()];
    if (position == kNoStep) continue;
    stands = true;
    Step& step = touch(script, {i, position});
    const std::uint32_t next = step.next;
    step = make_step(workload, now);
    step.next = next;
    note_changed({i, position});
  }
  if (stands) rewritten_.push_back(id);
  return true;
}

void ScriptPatch::take_out(AgentScript& script, ScriptIndex& index, At at) {
  const Script& in = script.scripts_[at.script];
  const Step here = in.steps[at.position];
  link(script, at.script, before_in_stream(in, at.position, here.stream), here.stream, here.next);
  touch(script, at);
  set_task(script, index, at, TaskId());
  removed_.push_back(at);
  --script.executed_;
}

bool ScriptPatch::splice(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent,
                         BodyId body, std::size_t position, std::span<const TaskId> out, std::size_t in) {
  constexpr std::uint8_t kOut = 1, kIn = 2;
  const std::vector<TaskId>& list = agent.bodies[body];
  const std::span<const TaskId> inserted(list.data() + position, in);
  const auto forget = [&](TaskId id) {
    for (auto* from : {&put_in_, &rewritten_})
      if (const auto at = std::find(from->begin(), from->end(), id); at != from->end()) {
        from->erase(at);
        return;
      }
  };
  for (const TaskId id : inserted) {
    const Task& task = agent.tasks[id];
    if (task.host != 0 || task.host_waits) return false;
    if (!script.guarded_ && task.when != PlayedFor::EveryMicroBatch) return false;
  }
  for (const TaskId id : out) index.marks[id.index()] |= kOut;
  for (const TaskId id : inserted) index.marks[id.index()] |= kIn;
  for (const TaskId id : out) {
    if (index.marks[id.index()] != kOut) continue;
    if (const auto left = std::find(leaving_.begin(), leaving_.end(), id); left != leaving_.end()) {
      leaving_.erase(left);
      continue;
    }
    taken_out_.push_back(id);
    forget(id);
    for (std::uint32_t i = 0; i < script.scripts_.size(); ++i)
      if (const std::uint32_t at = index.positions[i][id.index()]; at != kNoStep) take_out(script, index, {i, at});
  }
  // Those that come from elsewhere in the bodies leave there at once.
  const auto move = [&](TaskId id) {
    taken_out_.push_back(id);
    forget(id);
    put_in_.push_back(id);
    for (std::uint32_t k = 0; k < script.scripts_.size(); ++k)
      if (const std::uint32_t at = index.positions[k][id.index()]; at != kNoStep) take_out(script, index, {k, at});
  };
  for (const TaskId id : inserted) {
    if (index.marks[id.index()] != kIn) continue;
    const bool stands = std::any_of(index.positions.begin(), index.positions.end(),
                                    [&](const auto& positions) { return positions[id.index()] != kNoStep; });
    if (stands) {
      leaving_.push_back(id);
      move(id);
    } else {
      put_in_.push_back(id);
    }
  }
  for (const auto tasks : {out, inserted})
    for (const TaskId id : tasks) index.marks[id.index()] = 0;

  bool done = true;
  for (std::uint32_t i = 0; i < script.scripts_.size() && done; ++i) {
    if (script.made_of_[i].first != body) continue;
    const std::size_t kind = script.made_of_[i].second;
    const std::vector<std::uint32_t>& positions = index.positions[i];
    std::uint32_t low = kNoStep;
    for (std::size_t b = position; b-- > 0 && low == kNoStep;) low = positions[list[b].index()];
    TaskId high_task;  // the first after what was inserted
    for (std::size_t a = position + in; a < list.size() && !high_task.valid(); ++a)
      if (positions[list[a].index()] != kNoStep) high_task = list[a];
    std::vector<TaskId>& fresh = index.list;
    fresh.clear();
    for (const TaskId id : inserted) {
      if (script.guarded_ && !is_played(agent.tasks[id].when, kind)) continue;
      const std::uint32_t at = positions[id.index()];
      if (at != kNoStep && low != kNoStep && at <= low) move(id);  // in another order than before
      if (positions[id.index()] == kNoStep) {
        fresh.push_back(id);
        continue;
      }
      done = done && put(script, index, workload, agent, i, low, at, fresh);
      fresh.clear();
      low = positions[id.index()];
    }
    const auto high =
        high_task.valid() ? positions[high_task.index()] : static_cast<std::uint32_t>(script.scripts_[i].steps.size());
    done = done && put(script, index, workload, agent, i, low, high, fresh);
    fresh.clear();
  }
  return done;
}

// Puts the tasks evenly into the room between two places.
bool ScriptPatch::put(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent,
                      std::uint32_t which, std::uint32_t low, std::uint32_t high, std::span<const TaskId> tasks) {
  if (tasks.empty()) return true;
  Script& in = script.scripts_[which];
  std::vector<std::uint32_t>& room = index.room;
  room.clear();
  for (std::uint32_t p = low == kNoStep ? 0 : low + 1; p < high; ++p)
    if (in.streams[p] == Script::kEmpty) room.push_back(p);
  if (room.size() < tasks.size()) {
    if (!alone_) return false;
    widen(script, index, which, high);
    for (std::uint32_t p = high; p < high + kMoreRoom; ++p) room.push_back(p);
    if (room.size() < tasks.size()) return false;
  }
  for (std::size_t k = 0; k < tasks.size(); ++k) {
    const std::uint32_t position = room[(2 * k + 1) * room.size() / (2 * tasks.size())];
    const int stream = agent.tasks[tasks[k]].stream;
    const std::uint32_t before = before_in_stream(in, position, stream);
    const std::uint32_t next = before == kNoStep ? in.first[static_cast<std::size_t>(stream)] : in.steps[before].next;
    Step& step = touch(script, {which, position});
    step = make_step(workload, agent.tasks[tasks[k]]);
    step.next = next;
    link(script, which, before, stream, position);
    set_task(script, index, {which, position}, tasks[k]);
    Hop& hop = in.hops[position / in.hop_places];
    hop.streams = static_cast<std::uint8_t>(hop.streams | 1u << stream);
    added_.push_back({which, position});
    ++script.executed_;
    script.streams_ = std::max(script.streams_, stream + 1);
  }
  return true;
}

// More places just before one: all that stand there or after it move on. Nobody but this patch, the index and waits
// know places by number.
void ScriptPatch::widen(AgentScript& script, ScriptIndex& index, std::uint32_t which, std::uint32_t at) {
  Script& in = script.scripts_[which];
  const auto size = static_cast<std::uint32_t>(in.steps.size());
  const auto move = [&](std::uint32_t& place) {
    if (place >= at && place < size) place += kMoreRoom;
  };
  Step nothing;
  nothing.subject = kNoStep;
  in.steps.insert(in.steps.begin() + at, kMoreRoom, nothing);
  in.tasks.insert(in.tasks.begin() + at, kMoreRoom, TaskId());
  in.streams.insert(in.streams.begin() + at, kMoreRoom, Script::kEmpty);
  for (Step& step : in.steps) move(step.next);
  for (std::uint32_t& first : in.first) move(first);
  const auto [body, kind] = script.made_of_[which];
  for (std::uint32_t i = 0; i < script.scripts_.size(); ++i) {
    bool moved = false;
    for (StepWait& wait : script.scripts_[i].waits)
      if (wait.body.valid() ? wait.body == body && script.made_of_[i].second == kind : i == which) {
        move(wait.position);
        moved = true;
      }
    if (moved && i != which) script.scripts_[i].make_hops();
  }
  for (std::uint32_t& position : index.positions[which]) move(position);
  for (Touched& touched : touched_)
    if (touched.at.script == which) {
      move(touched.at.position);
      move(touched.step.next);
    }
  for (First& first : firsts_)
    if (first.script == which) move(first.step);
  for (Position& position : positions_)
    if (position.script == which) move(position.position);
  for (auto* list : {&removed_, &added_, &changed_})
    for (At& each : *list)
      if (each.script == which) move(each.position);
  in.make_hops();
  widened_ = true;
}

bool ScriptPatch::finish(AgentScript& script, ScriptIndex& index, const Agent& agent) {
  if (!leaving_.empty()) return false;  // stands twice
  const auto is_gone = [&](const At& at) { return !script.scripts_[at.script].tasks[at.position].valid(); };
  std::size_t stay = 0;
  for (std::size_t i = 0; i < changed_.size(); ++i)
    if (!is_gone(changed_[i])) {
      changed_[stay] = changed_[i];
      changed_from_[stay++] = changed_from_[i];
    }
  changed_.resize(stay);
  changed_from_.resize(stay);
  std::erase_if(added_, is_gone);

  const auto set_waits = [&](const At& at) {
    Script& in = script.scripts_[at.script];
    Step& step = in.steps[at.position];
    Waits waits(in, step);
    for (const TaskId awaited : agent.tasks[in.tasks[at.position]].after) {
      const std::uint8_t stream = agent.tasks[awaited].stream;
      if (stream == step.stream) continue;
      if (const std::uint32_t here = index.positions[at.script][awaited.index()];
          here != kNoStep && here < at.position) {
        waits.add(BodyId{}, here, awaited, stream);
        continue;
      }
      for (std::size_t k = 0; k < index.positions.size(); ++k)
        if (script.made_of_[k].second == script.made_of_[at.script].second &&
            index.positions[k][awaited.index()] != kNoStep)
          waits.add(script.made_of_[k].first, index.positions[k][awaited.index()], awaited, stream);
    }
    waits.finish();
  };
  // Who stays and comes after something that came, went or moved has other waits now.
  for (const auto* list : {&put_in_, &rewritten_})  // these get theirs anyway
    for (const TaskId id : *list) index.marks[id.index()] = 1;
  for (const auto* list : {&taken_out_, &put_in_})
    for (const TaskId id : *list)
      for (const TaskId follower : index.followers[id.index()])
        if (std::exchange(index.marks[follower.index()], 1) == 0) index.list.push_back(follower);
  for (const TaskId id : index.list)
    for (std::uint32_t i = 0; i < script.scripts_.size(); ++i)
      if (const std::uint32_t at = index.positions[i][id.index()]; at != kNoStep) {
        touch(script, {i, at});
        note_changed({i, at});
      }
  for (const TaskId id : index.list) index.marks[id.index()] = 0;
  index.list.clear();
  for (const auto* list : {&put_in_, &rewritten_})
    for (const TaskId id : *list) {
      index.marks[id.index()] = 0;
      follow(index, id, agent.tasks[id]);
    }
  for (const auto* list : {&added_, &changed_})
    for (const At& at : *list) set_waits(at);

  for (const Touched& touched : touched_) {
    Script& in = script.scripts_[touched.at.script];
    const At at{touched.at.script, touched.at.position / in.hop_places};
    Hop& hop = in.hops[at.position];
    if (hop.noted) continue;
    hops_.emplace_back(at, hop);
    hop.noted = true;
  }
  for (const auto& [at, before] : hops_) {
    Script& in = script.scripts_[at.script];
    in.hops[at.position] = in.make_hop(at.position);
    Hop& leap = in.leaps[at.position / Script::kLeap];
    if (leap.noted) continue;
    leaps_.emplace_back(At{at.script, at.position / Script::kLeap}, leap);
    leap.noted = true;
  }
  for (const auto& [at, before] : leaps_) {
    Script& in = script.scripts_[at.script];
    in.leaps[at.position] = in.make_leap(at.position);
  }
  std::size_t kept = 0;  // of those that change, who does not change to the same
  for (std::size_t i = 0; i < changed_.size(); ++i) {
    const At at = changed_[i];
    const Script& in = script.scripts_[at.script];
    Step was = touched_[changed_from_[i]].step;
    const Step& now = in.steps[at.position];
    const auto old_waits = in.waits_of(was), waits = in.waits_of(now);
    was.first_wait = now.first_wait;
    was.next = now.next;
    if (was != now || !std::equal(old_waits.begin(), old_waits.end(), waits.begin(), waits.end()))
      changed_[kept++] = at;
  }
  changed_.resize(kept);
  return true;
}

void ScriptPatch::sort() const {
  if (std::exchange(sorted_, true)) return;
  keep_first(touched_, by_place);
  keep_first(firsts_, by_stream);
  keep_first(positions_, by_task);
  for (auto* list : {&removed_, &added_, &changed_}) std::sort(list->begin(), list->end());
}

void ScriptPatch::release(AgentScript& script) const {
  for (const At& at : removed_) {
    Script& in = script.scripts_[at.script];
    if (!in.tasks[at.position].valid()) in.streams[at.position] = Script::kEmpty;
  }
}

void ScriptPatch::undo(AgentScript& script, ScriptIndex& index) {
  for (auto it = touched_.rbegin(); it != touched_.rend(); ++it) {
    Script& in = script.scripts_[it->at.script];
    in.steps[it->at.position] = it->step;
    in.tasks[it->at.position] = it->task;
    in.streams[it->at.position] = it->task.valid() ? it->step.stream : Script::kEmpty;
  }
  for (auto it = firsts_.rbegin(); it != firsts_.rend(); ++it)
    script.scripts_[it->script].first[static_cast<std::size_t>(it->stream)] = it->step;
  for (auto it = positions_.rbegin(); it != positions_.rend(); ++it)
    index.positions[it->script][it->task.index()] = it->position;
  for (const TaskId task : followed_) index.followers[task.index()].pop_back();
  if (widened_) {  // in the midst of it, hops were made anew
    for (const Touched& touched : touched_) {
      Script& in = script.scripts_[touched.at.script];
      const std::uint32_t hop = touched.at.position / in.hop_places;
      in.hops[hop] = in.make_hop(hop);
      in.leaps[hop / Script::kLeap] = in.make_leap(hop / Script::kLeap);
    }
  } else {
    for (const auto& [at, hop] : hops_) script.scripts_[at.script].hops[at.position] = hop;
    for (const auto& [at, leap] : leaps_) script.scripts_[at.script].leaps[at.position] = leap;
  }
  for (std::size_t i = 0; i < waits_.size(); ++i) script.scripts_[i].waits.resize(waits_[i]);
  script.executed_ = executed_;
  script.streams_ = streams_;
}

const Step* ScriptPatch::step_before(At at) const {
  sort();
  const Touched* found = find_in(touched_, at, by_place);
  return found != nullptr ? &found->step : nullptr;
}

std::optional<std::uint32_t> ScriptPatch::first_before(std::uint32_t script, int stream) const {
  sort();
  const First* found = find_in(firsts_, std::pair(script, stream), by_stream);
  return found != nullptr ? std::optional(found->step) : std::nullopt;
}

std::optional<std::uint32_t> ScriptPatch::position_before(std::uint32_t script, TaskId task) const {
  sort();
  const Position* found = find_in(positions_, std::pair(script, task), by_task);
  return found != nullptr ? std::optional(found->position) : std::nullopt;
}

}  // namespace weft::engine
