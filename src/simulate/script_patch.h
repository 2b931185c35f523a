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
  TaskPositions positions;
  std::vector<std::uint32_t> named;  // per task: how many tasks in bodies come after it
  std::vector<std::uint8_t> marks;   // per task: scratch, all 0

  void resize(std::size_t tasks);
};

// How often each task is named by those in bodies.
std::vector<std::uint32_t> count_names(const Agent& agent);

class ScriptPatch {
 public:
  struct At {
    std::uint32_t script = 0, position = 0;

    auto operator<=>(const At&) const = default;
  };

  ScriptPatch(const AgentScript& script, std::uint32_t agent)
      : agent_(agent), streams_(script.streams_), executed_(script.executed_) {
    for (const Script& each : script.scripts_) waits_.push_back(each.waits.size());
    touched_.reserve(32);
    positions_.reserve(16);
  }
  std::uint32_t agent() const { return agent_; }

  // The agent's task has new contents; `before` are the old ones.
  bool change(AgentScript& script, ScriptIndex& index, const Workload& workload, TaskId id, const Task& before,
              const Task& now);
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
  const std::vector<At>& removed() const { return removed_; }
  const std::vector<At>& added() const { return added_; }
  const std::vector<At>& changed() const { return changed_; }
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
  void set_task(AgentScript& script, ScriptIndex& index, At at, TaskId task);
  std::uint32_t before_in_stream(const Script& script, std::uint32_t position, int stream) const;
  void link(AgentScript& script, At at, int stream, std::uint32_t to);
  void name(ScriptIndex& index, const Task& task, int change);
  void take_out(AgentScript& script, ScriptIndex& index, At at);
  bool put(AgentScript& script, ScriptIndex& index, const Workload& workload, const Agent& agent, std::uint32_t which,
           std::uint32_t low, std::uint32_t high, std::span<const TaskId> tasks);

  std::uint32_t agent_ = 0;
  int streams_ = 0;
  std::uint64_t executed_ = 0;
  std::vector<std::size_t> waits_;
  std::vector<Touched> touched_;
  std::vector<First> firsts_;
  std::vector<Position> positions_;
  std::vector<std::pair<TaskId, int>> names_;
  std::vector<std::pair<At, Hop>> hops_;  // as they were; the position is that in Script::hops
  std::vector<At> removed_, added_, changed_;
  // Tasks that came, that went, that came to their new place before they have left the old one, and those that have
  // other contents where they stand.
  std::vector<TaskId> put_in_, taken_out_, leaving_, rewritten_;
};

}  // namespace weft::engine
