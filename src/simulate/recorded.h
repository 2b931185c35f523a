// Queries on a recorded run and its workload: the task of a record, the start of its work, its last party.
#pragma once

#include <vector>

#include "simulate/engine.h"
#include "simulate/script.h"

namespace weft {

struct ExecutedTask {
  AgentId agent;
  engine::Place place;

  bool operator==(const ExecutedTask&) const = default;
};

class Recorded {
 public:
  // `run` is the run of `workload`, with `record`.
  Recorded(const Workload& workload, const Run& run);

  const Workload& workload() const { return workload_; }
  const Run& run() const { return run_; }
  const engine::AgentScript& script(AgentId agent) const { return scripts_[agent.index()]; }
  const engine::Step& step(ExecutedTask task) const { return script(task.agent).step(task.place); }
  const TaskTimes& times(ExecutedTask task) const {
    return run_.agents[task.agent].tasks[script(task.agent).ordinal(task.place)];
  }
  const Work* work(ExecutedTask task) const;

  // The task whose start began the work: of a meeting the last party to arrive (the first agent of several), else the
  // task itself. The work starts when that task occupies its stream.
  ExecutedTask last_party(ExecutedTask task) const;
  Picoseconds work_start(ExecutedTask task) const { return times(last_party(task)).start; }

 private:
  const Workload& workload_;
  const Run& run_;
  std::vector<engine::AgentScript> scripts_;
  std::vector<std::vector<ExecutedTask>> last_;      // per meeting and occurrence
  std::vector<std::vector<std::uint32_t>> meeting_;  // per agent and executed task: the occurrence of its meeting
};

}  // namespace weft
