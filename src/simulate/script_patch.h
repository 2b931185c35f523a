// A script changed where it stands: steps are put into room left between others, and taken out, so that all that stay
// keep their places and an edit costs what it changes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "simulate/script.h"

namespace weft::engine {

// What is kept of an agent's script beside it.
struct ScriptIndex {
  ScriptIndex() = default;
  ScriptIndex(const Agent& agent, TaskPositions positions);

  TaskPositions positions;
  std::vector<std::vector<TaskId>> followers;  // per task: all in bodies that come after it, and perhaps others
  // Scratch, between patches all 0 and empty.
  std::vector<std::uint8_t> marks;  // per task
  std::vector<TaskId> list;
  std::vector<std::uint32_t> room;

  void resize(std::size_t tasks);
  // Forgets followers that are none any more.
  void find_followers(const Agent& agent);
};

class ScriptPatch {
 public:
  struct At {
    std::uint32_t script = 0, position = 0;

    auto operator<=>(const At&) const = default;
  };

  // `alone`: no other patch of the script may be taken back later, so that it may get more room.
  ScriptPatch(const AgentScript& script, std::uint32_t agent, bool alone)
      : agent_(agent), alone_(alone), streams_(script.streams_), executed_(script.executed_) {
    for (const Script& each : script.scripts_) waits_.push_back(each.waits.size());
    touched_.reserve(96);
    positions_.reserve(32);
  }
  std::uint32_t agent() const { return agent_; }

  // The agent's task has new contents.
  bool change(AgentScript& script, ScriptIndex& index, const Workload& workload, TaskId id, const Task& now);
  // In the agent's body, changed already, `out` has given way to so many tasks at `position`. False, here and in
  // `finish`: it cannot be done in place; `undo`, and make the script anew.
  bool splice(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent, BodyId body,
              std::size_t position, std::span<const TaskId> out, std::size_t in);
  // After all splices: settles who waits for whom.
  bool finish(AgentScript& script, ScriptIndex& index, const Agent& agent);
  // Nobody asks any more how it was: what was taken out leaves room.
  void release(AgentScript& script) const;
  void undo(AgentScript& script, ScriptIndex& index);

  // What is edited: taken out; put in; the same task with other contents. In order.
  const std::vector<At>& removed() const { return sort(), removed_; }
  const std::vector<At>& added() const { return sort(), added_; }
  const std::vector<At>& changed() const { return sort(), changed_; }
  bool empty() const { return removed_.empty() && added_.empty() && changed_.empty(); }
  // As it was: a step, the first of a stream, the place of a task. Nothing: as it is.
  const Step* step_before(At at) const;
  std::optional<std::uint32_t> first_before(std::uint32_t script, int stream) const;
  std::optional<std::uint32_t> position_before(std::uint32_t script, TaskId task) const;

 private:
  struct Touched {
    At at;
    Step step;
    TaskId task;
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

  Step& touch(AgentScript& script, At at);
  // The step touched last has other contents.
  void note_changed(At at) {
    changed_.push_back(at);
    changed_from_.push_back(static_cast<std::uint32_t>(touched_.size() - 1));
  }
  void set_task(AgentScript& script, ScriptIndex& index, At at, TaskId task);
  std::uint32_t before_in_stream(const Script& script, std::uint32_t position, int stream) const;
  void link(AgentScript& script, std::uint32_t which, std::uint32_t before, int stream, std::uint32_t to);
  void follow(ScriptIndex& index, TaskId id, const Task& task);
  void take_out(AgentScript& script, ScriptIndex& index, At at);
  bool put(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent, std::uint32_t which,
           std::uint32_t low, std::uint32_t high, std::span<const TaskId> tasks);
  void widen(AgentScript& script, ScriptIndex& index, std::uint32_t which, std::uint32_t at);
  // Most patches are never asked how it was before.
  void sort() const;

  std::uint32_t agent_ = 0;
  bool alone_ = false, widened_ = false;
  int streams_ = 0;
  std::uint64_t executed_ = 0;
  std::vector<std::size_t> waits_;
  mutable bool sorted_ = false;
  mutable std::vector<Touched> touched_;
  mutable std::vector<First> firsts_;
  mutable std::vector<Position> positions_;
  mutable std::vector<At> removed_, added_, changed_;
  std::vector<std::uint32_t> changed_from_;  // in `touched_`, before that is sorted
  std::vector<TaskId> followed_;             // tasks that got one more follower
  // As they were; the position is that in Script::hops and Script::leaps.
  std::vector<std::pair<At, Hop>> hops_, leaps_;
  // Tasks that came, that went, that came to their new place before they have left the old one, and those that have
  // other contents where they stand.
  std::vector<TaskId> put_in_, taken_out_, leaving_, rewritten_;
};

}  // namespace weft::engine
