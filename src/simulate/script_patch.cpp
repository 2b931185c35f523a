#include "simulate/script_patch.h"

#include <algorithm>

namespace weft::engine {
namespace {

// Of entries with equal keys keeps the first, which has the value before the patch.
template <class Entry, class Key>
void keep_first(std::vector<Entry>& entries, const Key& key) {
  const auto less = [&](const Entry& a, const Entry& b) { return key(a) < key(b); };
  if (entries.size() > 64)
    std::stable_sort(entries.begin(), entries.end(), less);
  else  // without allocating
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

// Whether two steps with the same place and waits have the same content.
bool same_content(Step a, const Step& b) {
  a.first_wait = b.first_wait;
  a.wait_count = b.wait_count;
  a.next = b.next;
  return a == b;
}

constexpr auto by_stream = [](const auto& first) { return std::pair(first.script, first.stream); };
constexpr auto by_task = [](const auto& position) { return std::pair(position.script, position.task); };

}  // namespace

ScriptIndex::ScriptIndex(const Agent& agent, TaskPositions found) : positions(std::move(found)) {
  resize(agent.tasks.size());
  find_followers(agent);
}

void ScriptIndex::find_followers(const Agent& agent) {
  std::fill(first_follower_.begin(), first_follower_.end(), kNoStep);
  followers_.clear();
  for (const std::vector<TaskId>& body : agent.bodies)
    for (const TaskId id : body)
      for (const TaskId after : agent.tasks[id].after) follow(id, after);
}

void ScriptIndex::follow_as(const ScriptIndex& twin, std::size_t from) {
  for (std::size_t i = from; i < twin.followers_.size(); ++i)
    follow(twin.followers_[i].task, twin.followers_[i].awaited);
}

void ScriptIndex::shrink_followers(std::size_t count) {
  for (; followers_.size() > count; followers_.pop_back())
    first_follower_[followers_.back().awaited.index()] = followers_.back().next;
}

void ScriptIndex::resize(std::size_t tasks) {
  if (tasks <= marks.size()) return;
  first_follower_.resize(tasks, kNoStep);
  marks.resize(tasks, 0);
  positions.resize(tasks);
}

void ScriptPatch::begin(const AgentScript& script, const ScriptIndex& index, std::uint32_t agent) {
  agent_ = agent;
  streams_ = script.streams_;
  executed_ = script.executed_;
  followers_ = index.followers();
  stamp_ = script.pool_->new_stamp();
}

void ScriptPatch::clear() {
  first_ = nullptr;
  edits_.clear();
  blocks_.clear();
  leaps_.clear();
  sorted_ = false;
  firsts_.clear();
  positions_.clear();
  for (auto* list : {&removed_, &added_, &changed_}) list->clear();
  for (auto* list : {&put_in_, &taken_out_, &leaving_, &rewritten_}) list->clear();
}

Block& ScriptPatch::touch(AgentScript& script, At at) {
  const std::uint32_t index = at.position / Block::kPlaces;
  BlockRef& block = script.scripts_[at.script].blocks[index];
  if (block->stamp != stamp_) {
    BlockRef copy = script.pool_->copy(*block);
    copy->stamp = stamp_;
    blocks_.push_back({at.script, index, std::exchange(block, std::move(copy))});
  }
  return *block;
}

void ScriptPatch::set_position(ScriptIndex& index, std::uint32_t script, TaskId task, std::uint32_t position) {
  positions_.push_back({script, task, std::exchange(index.positions(script, task), position)});
}

std::uint32_t ScriptPatch::before_in_stream(const Script& script, std::uint32_t position, int stream) const {
  std::uint32_t index = position / Block::kPlaces;
  std::uint32_t place = position % Block::kPlaces;
  for (;; --index) {
    const Block& block = *script.blocks[index];
    if ((block.hop.streams >> stream & 1) != 0)
      for (std::uint32_t i = block.count; i-- > 0;)
        if (block.places[i] < place && block.steps[i].stream == stream) return index * Block::kPlaces + block.places[i];
    if (index == 0) return kNoStep;
    place = Block::kPlaces;
  }
}

// Makes `to` the successor of `before`, or the first of the stream.
void ScriptPatch::link(AgentScript& script, std::uint32_t which, std::uint32_t before, int stream, std::uint32_t to) {
  if (before != kNoStep) {
    Block& block = touch(script, {which, before});
    block.steps[block.at(before)].next = to;
  } else {
    std::uint32_t& first = script.scripts_[which].first[static_cast<std::size_t>(stream)];
    firsts_.push_back({which, stream, std::exchange(first, to)});
  }
}

bool ScriptPatch::change(AgentScript& script, ScriptIndex& index, const Workload& workload, TaskId id,
                         const Task& now) {
  if (now.host != 0 || now.host_waits) return false;
  bool in_a_body = false;
  for (std::uint32_t i = 0; i < script.scripts_.size(); ++i) {
    const std::uint32_t position = index.positions(i, id);
    if (position == kNoStep) continue;
    in_a_body = true;
    Block& block = touch(script, {i, position});
    Step& step = block.steps[block.at(position)];
    const std::uint32_t next = step.next;
    step = make_step(workload, now, script.made_of_[i].kind);
    step.next = next;
    changed_.push_back({i, position});
  }
  if (in_a_body) rewritten_.push_back(id);
  return true;
}

void ScriptPatch::take_out(AgentScript& script, ScriptIndex& index, At at) {
  const Script& in = script.scripts_[at.script];
  const Step here = in.step(at.position);
  link(script, at.script, before_in_stream(in, at.position, here.stream), here.stream, here.next);
  Block& block = touch(script, at);
  const std::uint32_t i = block.at(at.position);
  set_position(index, at.script, block.tasks[i], kNoStep);
  block.erase(i);
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
  const auto leave = [&](TaskId id) {
    taken_out_.push_back(id);
    forget(id);
    for (std::uint32_t i = 0; i < script.scripts_.size(); ++i)
      if (const std::uint32_t at = index.positions(i, id); at != kNoStep) take_out(script, index, {i, at});
  };
  for (const TaskId id : out) index.marks[id.index()] |= kOut;
  for (const TaskId id : inserted) index.marks[id.index()] |= kIn;
  for (const TaskId id : out) {
    if (index.marks[id.index()] != kOut) continue;
    if (const auto left = std::find(leaving_.begin(), leaving_.end(), id); left != leaving_.end()) {
      leaving_.erase(left);
      continue;
    }
    leave(id);
  }
  // Tasks moved from elsewhere in the bodies are removed there first.
  for (const TaskId id : inserted) {
    if (index.marks[id.index()] != kIn) continue;
    if (index.positions.contains(id)) {
      leaving_.push_back(id);
      leave(id);
    }
    put_in_.push_back(id);
  }
  for (const auto tasks : {out, inserted})
    for (const TaskId id : tasks) index.marks[id.index()] = 0;

  bool done = true;
  for (std::uint32_t i = 0; i < script.scripts_.size() && done; ++i) {
    if (script.made_of_[i].body != body) continue;
    const std::size_t kind = script.made_of_[i].kind;
    std::uint32_t low = kNoStep;
    for (std::size_t b = position; b-- > 0 && low == kNoStep;) low = index.positions(i, list[b]);
    std::uint32_t high = kNoStep;  // position of the first step after the inserted ones
    for (std::size_t a = position + in; a < list.size() && high == kNoStep; ++a) high = index.positions(i, list[a]);
    if (high == kNoStep) high = static_cast<std::uint32_t>(script.scripts_[i].blocks.size()) * Block::kPlaces;
    std::vector<TaskId>& fresh = index.list;
    fresh.clear();
    for (const TaskId id : inserted) {
      if (script.guarded_ && !is_played(agent.tasks[id].when, kind)) continue;
      const std::uint32_t at = index.positions(i, id);
      if (at != kNoStep && low != kNoStep && at <= low) {  // the order has changed
        leave(id);
        put_in_.push_back(id);
      }
      if (index.positions(i, id) == kNoStep) {
        fresh.push_back(id);
        continue;
      }
      done = done && put(script, index, workload, agent, i, low, at, fresh);
      fresh.clear();
      low = at;
    }
    done = done && put(script, index, workload, agent, i, low, high, fresh);
    fresh.clear();
  }
  return done;
}

// Inserts the tasks at even distances between two places. A place from which a step was removed is not reused, so that
// the old step is known to be gone.
bool ScriptPatch::put(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent,
                      std::uint32_t which, std::uint32_t low, std::uint32_t high, std::span<const TaskId> tasks) {
  if (tasks.empty()) return true;
  const Script& in = script.scripts_[which];
  std::uint32_t from = low == kNoStep ? 0 : low + 1;
  for (std::size_t k = 0; k < tasks.size(); ++k) {
    const auto parts = 2 * static_cast<std::uint32_t>(tasks.size() - k);
    if (from >= high) return false;
    const std::uint32_t half = (high - from) / parts;
    std::uint32_t position = from + half;
    while (std::find(removed_.begin(), removed_.end(), At{which, position}) != removed_.end()) ++position;
    if (position >= high) return false;
    if (in.blocks[position / Block::kPlaces]->count == Block::kCapacity) return false;
    const int stream = agent.tasks[tasks[k]].stream;
    const std::uint32_t before = before_in_stream(in, position, stream);
    Step step = make_step(workload, agent.tasks[tasks[k]], script.made_of_[which].kind);
    step.next = before == kNoStep ? in.first[static_cast<std::size_t>(stream)] : in.step(before).next;
    link(script, which, before, stream, position);
    Block& block = touch(script, {which, position});
    block.insert(position, step, tasks[k]);
    block.hop.streams = static_cast<StreamMask>(block.hop.streams | 1u << stream);
    set_position(index, which, tasks[k], position);
    added_.push_back({which, position});
    ++script.executed_;
    script.streams_ = std::max(script.streams_, stream + 1);
    from = std::max(from + 2 * half, position + 1);
  }
  return true;
}

// Collects the waits of the step in the index's list.
void ScriptPatch::find_waits(const AgentScript& script, ScriptIndex& index, const Agent& agent, At at) const {
  index.waits.clear();
  const Script& in = script.scripts_[at.script];
  const Task& task = agent.tasks[in.task(at.position)];
  for (const TaskId awaited : task.after) {
    const std::uint8_t stream = agent.tasks[awaited].stream;
    if (stream == task.stream) continue;
    if (const std::uint32_t here = index.positions(at.script, awaited); here != kNoStep && here < at.position) {
      add_wait(index.waits, 0, {BodyId{}, here, awaited, stream});
      continue;
    }
    for (std::size_t k = 0; k < script.scripts_.size(); ++k)
      if (const std::uint32_t there = index.positions(k, awaited);
          there != kNoStep && script.made_of_[k].moment == script.made_of_[at.script].moment)
        add_wait(index.waits, 0, {script.made_of_[k].body, there, awaited, stream});
  }
}

bool ScriptPatch::finish(AgentScript& script, ScriptIndex& index, const Agent& agent) {
  if (!leaving_.empty()) return false;  // a task is in the body twice
  const auto is_gone = [&](const At& at) {
    const Block& block = *script.scripts_[at.script].blocks[at.position / Block::kPlaces];
    return block.at(at.position) == block.count;
  };
  std::erase_if(changed_, is_gone);
  std::erase_if(added_, is_gone);
  const auto set_waits = [&](const At& at) {
    find_waits(script, index, agent, at);
    Block& block = touch(script, at);
    block.set_waits(block.at(at.position), index.waits);
  };
  for (const auto* list : {&added_, &changed_})
    for (const At& at : *list) set_waits(at);
  std::erase_if(changed_, [&](const At& at) { return is_the_same(script, at); });

  // The waits of kept tasks that follow an inserted, removed or moved task may have changed.
  for (const auto* list : {&put_in_, &rewritten_})  // these have their waits already
    for (const TaskId id : *list) index.marks[id.index()] = 1;
  for (const auto* list : {&taken_out_, &put_in_})
    for (const TaskId id : *list)
      index.each_follower(id, [&](TaskId follower) {
        if (std::exchange(index.marks[follower.index()], 1) == 0) index.list.push_back(follower);
      });
  for (const TaskId id : index.list) {
    index.marks[id.index()] = 0;
    for (std::uint32_t i = 0; i < script.scripts_.size(); ++i) {
      const At at{i, index.positions(i, id)};
      if (at.position == kNoStep) continue;
      find_waits(script, index, agent, at);
      const auto before = script.scripts_[i].waits_at(at.position);
      if (std::equal(before.begin(), before.end(), index.waits.begin(), index.waits.end())) continue;
      Block& block = touch(script, at);
      block.set_waits(block.at(at.position), index.waits);
      changed_.push_back(at);
    }
  }
  index.list.clear();
  for (const auto* list : {&put_in_, &rewritten_})
    for (const TaskId id : *list) {
      index.marks[id.index()] = 0;
      for (const TaskId awaited : agent.tasks[id].after) index.follow(id, awaited);
    }

  for (const Old& old : blocks_) {
    Script& in = script.scripts_[old.script];
    in.blocks[old.index]->make_hop(old.index);
    const std::uint32_t above = old.index / Script::kLeap;
    if (std::exchange(in.leaps[above].noted, true)) continue;
    leaps_.emplace_back(At{old.script, above}, in.leaps[above]);
    leaps_.back().second.noted = false;
  }
  for (const auto& [at, before] : leaps_)
    script.scripts_[at.script].leaps[at.position] = script.scripts_[at.script].make_leap(at.position);
  return true;
}

bool ScriptPatch::can_follow(const ScriptPatch& first, const AgentScript& script, const ScriptIndex& index,
                             const Agent& agent, const Agent& twin,
                             std::span<const std::pair<TaskId, Task>> changed) const {
  // Rewritten steps are made from equal tasks, ...
  for (const TaskId id : first.put_in_) {
    if (!agent.tasks.contains(id)) continue;
    if (std::any_of(changed.begin(), changed.end(), [&](const auto& each) { return each.first == id; })) continue;
    if (agent.tasks[id].work != twin.tasks[id].work || agent.tasks[id].meeting != twin.tasks[id].meeting) return false;
  }
  // ... and steps with new contents had equal old ones: a step unchanged here is unchanged there.
  for (const Old& old : first.blocks_) {
    const BlockRef& mine = script.scripts_[old.script].blocks[old.index];
    if (mine == old.block) continue;
    for (const TaskId id : first.rewritten_) {
      const std::uint32_t position = index.positions(old.script, id);
      if (position == kNoStep || position / Block::kPlaces != old.index) continue;
      if (!same_content(mine->steps[mine->at(position)], old.block->steps[old.block->at(position)])) return false;
    }
  }
  return true;
}

void ScriptPatch::follow(const ScriptPatch& first, AgentScript& script, ScriptIndex& index, const AgentScript& twin,
                         const ScriptIndex& index_of_twin) {
  first_ = &first;
  const auto is_written = [&](TaskId id) {
    return std::find(first.put_in_.begin(), first.put_in_.end(), id) != first.put_in_.end() ||
           std::find(first.rewritten_.begin(), first.rewritten_.end(), id) != first.rewritten_.end();
  };
  for (const Old& old : first.blocks_) {
    BlockRef& mine = script.scripts_[old.script].blocks[old.index];
    const BlockRef& now = twin.scripts_[old.script].blocks[old.index];
    if (mine == old.block) {
      mine = now;
      continue;
    }
    // The same places and waits; kept steps keep their own work.
    BlockRef copy = script.pool_->copy(*now);
    for (std::uint32_t i = 0; i < copy->count; ++i) {
      if (is_written(copy->tasks[i])) continue;
      Step step = mine->steps[mine->at(copy->places[i])];
      step.first_wait = copy->steps[i].first_wait;
      step.wait_count = copy->steps[i].wait_count;
      step.next = copy->steps[i].next;
      copy->steps[i] = step;
    }
    copy->make_hop(old.index);
    blocks_.push_back({old.script, old.index, std::exchange(mine, std::move(copy))});
  }
  for (const First& each : first.firsts_) script.scripts_[each.script].first = twin.scripts_[each.script].first;
  for (const Position& each : first.positions_)
    index.positions(each.script, each.task) = index_of_twin.positions(each.script, each.task);
  for (const auto& [at, before] : first.leaps_) {
    Script& in = script.scripts_[at.script];
    leaps_.emplace_back(at, in.leaps[at.position]);
    in.leaps[at.position] = in.make_leap(at.position);
  }
  index.follow_as(index_of_twin, first.followers_);
  script.executed_ = twin.executed_;
  script.streams_ = twin.streams_;
}

// Whether a kept step is unchanged.
bool ScriptPatch::is_the_same(const AgentScript& script, At at) const {
  const Block& before = *block_before(at);
  const Block& now = *script.scripts_[at.script].blocks[at.position / Block::kPlaces];
  Step was = before.steps[before.at(at.position)];
  const auto old_waits = before.waits_of(was);
  const Step& is = now.steps[now.at(at.position)];
  const auto waits = now.waits_of(is);
  was.first_wait = is.first_wait;
  was.next = is.next;
  return was == is && std::equal(old_waits.begin(), old_waits.end(), waits.begin(), waits.end());
}

void ScriptPatch::sort() const {
  if (std::exchange(sorted_, true)) return;
  keep_first(firsts_, by_stream);
  keep_first(positions_, by_task);
  for (auto* list : {&removed_, &added_, &changed_}) std::sort(list->begin(), list->end());
}

void ScriptPatch::undo(AgentScript& script, ScriptIndex& index) {
  const ScriptPatch& from = lists();
  for (const Old& old : from.blocks_) script.scripts_[old.script].blocks[old.index] = old.block;
  for (Old& old : blocks_) script.scripts_[old.script].blocks[old.index] = std::move(old.block);
  for (auto it = from.firsts_.rbegin(); it != from.firsts_.rend(); ++it)
    script.scripts_[it->script].first[static_cast<std::size_t>(it->stream)] = it->step;
  for (auto it = from.positions_.rbegin(); it != from.positions_.rend(); ++it)
    index.positions(it->script, it->task) = it->position;
  for (const auto& [at, leap] : leaps_) script.scripts_[at.script].leaps[at.position] = leap;
  index.shrink_followers(followers_);
  script.executed_ = executed_;
  script.streams_ = streams_;
}

const std::vector<ScriptPatch::Edit>& ScriptPatch::edits(const AgentScript& script) const {
  if (first_ != nullptr) return first_->edits(script);
  if (!edits_.empty()) return edits_;
  edits_.reserve(removed_.size() + added_.size() + changed_.size());
  for (const At& at : removed_) {
    const Block& before = *block_before(at);
    edits_.push_back({at.script, 2 * at.position + 2, before.steps[before.at(at.position)].stream});
  }
  for (const auto* list : {&added_, &changed_})
    for (const At& at : *list)
      edits_.push_back({at.script, 2 * at.position + 2, script.scripts_[at.script].step(at.position).stream});
  std::sort(edits_.begin(), edits_.end());
  return edits_;
}

void ScriptPatch::share(AgentScript& script, const AgentScript& other) const {
  for (const Old& old : blocks_) {
    if (old.script >= other.scripts_.size() || old.index >= other.scripts_[old.script].blocks.size()) continue;
    BlockRef& mine = script.scripts_[old.script].blocks[old.index];
    const BlockRef& others = other.scripts_[old.script].blocks[old.index];
    if (mine != others && *mine == *others) mine = others;
  }
}

std::optional<std::uint32_t> ScriptPatch::first_before(std::uint32_t script, int stream) const {
  if (first_ != nullptr) return first_->first_before(script, stream);
  sort();
  const First* found = find_in(firsts_, std::pair(script, stream), by_stream);
  return found != nullptr ? std::optional(found->step) : std::nullopt;
}

std::optional<std::uint32_t> ScriptPatch::position_before(std::uint32_t script, TaskId task) const {
  if (first_ != nullptr) return first_->position_before(script, task);
  sort();
  const Position* found = find_in(positions_, std::pair(script, task), by_task);
  return found != nullptr ? std::optional(found->position) : std::nullopt;
}

}  // namespace weft::engine
