// Separate from timeline.cpp because the engine and the schedule each define a type Place.
#include "forecast/critical.h"

#include "simulate/critical_path.h"

namespace weft {

std::vector<PathStretch> critical_stretches(const Workload& workload, const Run& run) {
  const Recorded recorded(workload, run);
  std::vector<PathStretch> path;
  for (const Stretch& stretch : critical_path(recorded)) {
    const Agent& agent = workload.agents[stretch.task.agent];
    const TaskId task = recorded.script(stretch.task.agent).task(stretch.task.place);
    const PathPart part = stretch.spent == Spent::Compute         ? PathPart::Compute
                          : stretch.spent == Spent::Communication ? PathPart::Communication
                          : stretch.spent == Spent::Sharing       ? PathPart::Sharing
                                                                  : PathPart::Host;
    path.push_back({part, agent.tasks[task].label, stretch.to - stretch.from});
  }
  return path;
}

}  // namespace weft
