// An edit of a script in place: steps are inserted into gaps between others and removed, so that all other steps keep
// their places and an edit costs only what it changes. Changed blocks are copies; the patch keeps the old ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "simulate/script.h"

namespace weft::engine {

// Indices of an agent's script: positions of tasks, and their followers (tasks that wait for them).
class ScriptIndex {
 public:
  ScriptIndex() = default;
  ScriptIndex(const Agent& agent, TaskPositions found);

  TaskPositions positions;
  // Scratch; all 0 and empty between patches.
  std::vector<std::uint8_t> marks;  // per task
  std::vector<TaskId> list;
  std::vector<StepWait> waits;

  void resize(std::size_t tasks);

  // Visits all tasks in bodies that wait for a task, and perhaps others: visit(task).
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
  // Copies a twin's followers from index `from` on.
  void follow_as(const ScriptIndex& twin, std::size_t from);
  // Drops all but the first `count` followers.
  void shrink_followers(std::size_t count);
  // Recomputes followers, without outdated ones.
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

  // An edit of a stream, at 2q + 1, just before place q of a script, or at 2q + 2, at place q.
  struct Edit {
    std::uint32_t script = 0, mark = 0;
    int stream = 0;

    auto operator<=>(const Edit&) const = default;
  };

  // Begins a patch of a script in blocks. The patch must be new or cleared.
  void begin(const AgentScript& script, const ScriptIndex& index, std::uint32_t agent);
  void clear();
  std::uint32_t agent() const { return agent_; }
  // The patch whose lists this one uses: itself, or the one that it follows.
  const ScriptPatch& first() const { return lists(); }

  // The agent's task has new contents.
  bool change(AgentScript& script, ScriptIndex& index, const Workload& workload, TaskId id, const Task& now);
  // In the agent's body, already changed, the tasks `out` were replaced by `in` tasks at `position`. False, here and in
  // `finish`: impossible in place; the caller must `undo` and rebuild the script.
  bool splice(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent, BodyId body,
              std::size_t position, std::span<const TaskId> out, std::size_t in);
  // To be called after all splices: updates the waits.
  bool finish(AgentScript& script, ScriptIndex& index, const Agent& agent);
  // An alternative to splices: the agent's twin (twins.h) has had the same edit, with the patch `first`. Whether the
  // patch can be repeated here; `agent` is not changed yet, and `changed` are the tasks that will be.
  bool can_follow(const ScriptPatch& first, const AgentScript& script, const ScriptIndex& index, const Agent& agent,
                  const Agent& twin, std::span<const std::pair<TaskId, Task>> changed) const;
  // Repeats it; shared blocks stay shared. `first` must stay valid and be undone later.
  void follow(const ScriptPatch& first, AgentScript& script, ScriptIndex& index, const AgentScript& twin,
              const ScriptIndex& index_of_twin);
  void undo(AgentScript& script, ScriptIndex& index);
  // The patch is permanent: shares its new blocks with those of the other script that are equal.
  void share(AgentScript& script, const AgentScript& other) const;

  // The edited places: removed, inserted, and with changed contents; in order.
  const std::vector<At>& removed() const { return lists().sort(), lists().removed_; }
  const std::vector<At>& added() const { return lists().sort(), lists().added_; }
  const std::vector<At>& changed() const { return lists().sort(), lists().changed_; }
  bool empty() const { return lists().removed_.empty() && lists().added_.empty() && lists().changed_.empty(); }
  // All of these in order, computed on demand.
  const std::vector<Edit>& edits(const AgentScript& script) const;
  // Before the patch: the block of a place, the first step of a stream, the position of a task. None: unchanged.
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
  // The block of a place, copied for writing.
  Block& touch(AgentScript& script, At at);
  void set_position(ScriptIndex& index, std::uint32_t script, TaskId task, std::uint32_t position);
  std::uint32_t before_in_stream(const Script& script, std::uint32_t position, int stream) const;
  void link(AgentScript& script, std::uint32_t which, std::uint32_t before, int stream, std::uint32_t to);
  void take_out(AgentScript& script, ScriptIndex& index, At at);
  bool put(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent, std::uint32_t which,
           std::uint32_t low, std::uint32_t high, std::span<const TaskId> tasks);
  void find_waits(const AgentScript& script, ScriptIndex& index, const Agent& agent, At at) const;
  bool is_the_same(const AgentScript& script, At at) const;
  // Sorts the lists, on demand.
  void sort() const;

  // The twin's patch whose lists this one uses too; blocks, leaps and followers of its own are here.
  const ScriptPatch* first_ = nullptr;
  std::uint32_t agent_ = 0;
  int streams_ = 0;
  std::uint64_t executed_ = 0;
  std::size_t followers_ = 0;
  std::uint64_t stamp_ = 0;
  std::vector<Old> blocks_;
  std::vector<std::pair<At, Hop>> leaps_;  // by index into Script::leaps
  mutable bool sorted_ = false;
  mutable std::vector<First> firsts_;
  mutable std::vector<Position> positions_;
  mutable std::vector<At> removed_, added_, changed_;
  mutable std::vector<Edit> edits_;
  // Tasks inserted, removed, inserted at their new place before their removal from the old one, and changed in place.
  std::vector<TaskId> put_in_, taken_out_, leaving_, rewritten_;
};

}  // namespace weft::engine
