// A recorded run with its workload, made easy to ask: which task is this, when did its work start, who came last.
#pragma once

#include <vector>

#include "simulate/engine.h"
#include "simulate/script.h"

namespace weft {

struct ExecutedTask {
  AgentId agent;
  Place place;

  bool operator==(const ExecutedTask&) const = default;
};

class Recorded {
 public:
  // The run was made of the workload, with `record`.
  Recorded(const Workload& workload, const Run& run);

  const Workload& workload() const { return workload_; }
  const Run& run() const { return run_; }
  const AgentScript& script(AgentId agent) const { return scripts_[agent.index()]; }
  const Step& step(ExecutedTask task) const { return script(task.agent).step(task.place); }
  const TaskTimes& times(ExecutedTask task) const {
    return run_.agents[task.agent].tasks[script(task.agent).ordinal(task.place)];
  }
  const Work* work(ExecutedTask task) const;

  // The party whose coming let the task's work start: of a meeting the last to come (the first agent of several);
  // else the task itself. The work starts when that one takes its stream.
  ExecutedTask last_party(ExecutedTask task) const;
  Picoseconds work_start(ExecutedTask task) const { return times(last_party(task)).start; }

 private:
  const Workload& workload_;
  const Run& run_;
  std::vector<AgentScript> scripts_;
  std::vector<std::vector<ExecutedTask>> last_;      // per meeting and time it is held
  std::vector<std::vector<std::uint32_t>> meeting_;  // per agent and executed task: which time of its meeting
};

}  // namespace weft
