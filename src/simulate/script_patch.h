// A script changed where it stands: steps are put into room left between others, and taken out, so that all that stay
// keep their places and an edit costs what it changes. Blocks that change are copies; the patch keeps the old ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "simulate/script.h"

namespace weft::engine {

// What is kept of an agent's script beside it.
class ScriptIndex {
 public:
  ScriptIndex() = default;
  ScriptIndex(const Agent& agent, TaskPositions found);

  TaskPositions positions;
  // Scratch, between patches all 0 and empty.
  std::vector<std::uint8_t> marks;  // per task
  std::vector<TaskId> list;
  std::vector<StepWait> waits;

  void resize(std::size_t tasks);

  // All tasks in bodies that come after one, and perhaps others: visit(task).
  template <class Visit>
  void each_follower(TaskId task, const Visit& visit) const {
    for (std::uint32_t i = first_follower_[task.index()]; i != kNoStep; i = followers_[i].next)
      visit(followers_[i].task);
  }
  void follow(TaskId task, TaskId awaited) {
    std::uint32_t& first = first_follower_[awaited.index()];
    followers_.push_back({task, awaited, std::exchange(first, static_cast<std::uint32_t>(followers_.size()))});
  }
  std::size_t followers() const { return followers_.size(); }
  // As a twin's, beyond the first so many.
  void follow_as(const ScriptIndex& twin, std::size_t from);
  // Forgets all but the first so many.
  void shrink_followers(std::size_t count);
  // Forgets followers that are none any more.
  void find_followers(const Agent& agent);

 private:
  struct Follower {
    TaskId task, awaited;
    std::uint32_t next = kNoStep;
  };
  std::vector<std::uint32_t> first_follower_;  // per task
  std::vector<Follower> followers_;
};

class ScriptPatch {
 public:
  struct At {
    std::uint32_t script = 0, position = 0;

    auto operator<=>(const At&) const = default;
  };

  // An edit of a stream: at 2q + 1, just before the place q of a script, or at 2q + 2, at it.
  struct Edit {
    std::uint32_t script = 0, mark = 0;
    int stream = 0;

    auto operator<=>(const Edit&) const = default;
  };

  // Of a script in blocks. It is then as it was made, or cleared.
  void begin(const AgentScript& script, const ScriptIndex& index, std::uint32_t agent);
  void clear();
  std::uint32_t agent() const { return agent_; }
  // Whom others that are the same follow: it, or whom it follows itself.
  const ScriptPatch& first() const { return lists(); }

  // The agent's task has new contents.
  bool change(AgentScript& script, ScriptIndex& index, const Workload& workload, TaskId id, const Task& now);
  // In the agent's body, changed already, `out` has given way to so many tasks at `position`. False, here and in
  // `finish`: it cannot be done in place; `undo`, and make the script anew.
  bool splice(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent, BodyId body,
              std::size_t position, std::span<const TaskId> out, std::size_t in);
  // After all splices: settles who waits for whom.
  bool finish(AgentScript& script, ScriptIndex& index, const Agent& agent);
  // Instead of all that: the agent's twin (twins.h) has had the same edit, and `first` is what was done there. Can it
  // be done here too? `agent` has not been changed yet, and `changed` tells which of its tasks will be.
  bool can_follow(const ScriptPatch& first, const AgentScript& script, const ScriptIndex& index, const Agent& agent,
                  const Agent& twin, std::span<const std::pair<TaskId, Task>> changed) const;
  // Does it: blocks that both have in common stay so. `first` stays where it is, and is undone later.
  void follow(const ScriptPatch& first, AgentScript& script, ScriptIndex& index, const AgentScript& twin,
              const ScriptIndex& index_of_twin);
  void undo(AgentScript& script, ScriptIndex& index);
  // It will not be taken back: blocks that it made are shared with the other script where they are the same.
  void share(AgentScript& script, const AgentScript& other) const;

  // What is edited: taken out; put in; the same task with other contents. In order.
  const std::vector<At>& removed() const { return lists().sort(), lists().removed_; }
  const std::vector<At>& added() const { return lists().sort(), lists().added_; }
  const std::vector<At>& changed() const { return lists().sort(), lists().changed_; }
  bool empty() const { return lists().removed_.empty() && lists().added_.empty() && lists().changed_.empty(); }
  // All of these, of the patched script, in order. Of most patches nobody asks.
  const std::vector<Edit>& edits(const AgentScript& script) const;
  // As it was: the block of a place, the first of a stream, the place of a task. Nothing: as it is.
  const Block* block_before(At at) const {
    for (const Old& old : blocks_)
      if (old.script == at.script && old.index == at.position / Block::kPlaces) return &*old.block;
    return first_ != nullptr ? first_->block_before(at) : nullptr;
  }
  std::optional<std::uint32_t> first_before(std::uint32_t script, int stream) const;
  std::optional<std::uint32_t> position_before(std::uint32_t script, TaskId task) const;

 private:
  struct Old {
    std::uint32_t script = 0, index = 0;
    BlockRef block;
  };
  struct First {
    std::uint32_t script = 0;
    int stream = 0;
    std::uint32_t step = kNoStep;
  };
  struct Position {
    std::uint32_t script = 0;
    TaskId task;
    std::uint32_t position = kNoStep;
  };

  const ScriptPatch& lists() const { return first_ != nullptr ? *first_ : *this; }
  // The block of a place, to be changed.
  Block& touch(AgentScript& script, At at);
  void set_position(ScriptIndex& index, std::uint32_t script, TaskId task, std::uint32_t position);
  std::uint32_t before_in_stream(const Script& script, std::uint32_t position, int stream) const;
  void link(AgentScript& script, std::uint32_t which, std::uint32_t before, int stream, std::uint32_t to);
  void take_out(AgentScript& script, ScriptIndex& index, At at);
  bool put(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent, std::uint32_t which,
           std::uint32_t low, std::uint32_t high, std::span<const TaskId> tasks);
  void find_waits(const AgentScript& script, ScriptIndex& index, const Agent& agent, At at) const;
  bool is_the_same(const AgentScript& script, At at) const;
  // Most patches are never asked how it was before.
  void sort() const;

  // A twin's, whose lists are this one's too: of blocks, leaps and followers there are some here as well.
  const ScriptPatch* first_ = nullptr;
  std::uint32_t agent_ = 0;
  int streams_ = 0;
  std::uint64_t executed_ = 0;
  std::size_t followers_ = 0;
  std::uint64_t stamp_ = 0;
  std::vector<Old> blocks_;
  std::vector<std::pair<At, Hop>> leaps_;  // the position is that in Script::leaps
  mutable bool sorted_ = false;
  mutable std::vector<First> firsts_;
  mutable std::vector<Position> positions_;
  mutable std::vector<At> removed_, added_, changed_;
  mutable std::vector<Edit> edits_;
  // Tasks that came, that went, that came to their new place before they have left the old one, and those that have
  // other contents where they stand.
  std::vector<TaskId> put_in_, taken_out_, leaving_, rewritten_;
};

}  // namespace weft::engine
