#include "simulate/recorded.h"

namespace weft {

Recorded::Recorded(const Workload& workload, const Run& run) : workload_(workload), run_(run) {
  scripts_.reserve(workload.agents.size());
  for (const Agent& agent : workload.agents) scripts_.emplace_back(workload, agent);
  last_.resize(workload.meetings.size());
  meeting_.resize(workload.agents.size());
  std::vector<std::uint32_t> held(workload.meetings.size());
  for (const AgentId agent : workload.agents.ids()) {
    const AgentScript& script = scripts_[agent.index()];
    WEFT_CHECK(run.agents[agent].tasks.size() == script.executed(),
               "the run was not recorded, or not of this workload");
    std::fill(held.begin(), held.end(), 0);
    std::vector<std::uint32_t>& which = meeting_[agent.index()];
    which.resize(script.executed());
    for (std::uint32_t play = 0; play < script.plays(); ++play)
      for (std::uint32_t position = 0; position < script.script(play).steps.size(); ++position) {
        const ExecutedTask task{agent, {play, position}};
        const Step& made = step(task);
        if (made.kind != StepKind::Meet) continue;
        const std::uint32_t time = held[made.subject]++;
        which[script.ordinal(task.place)] = time;
        std::vector<ExecutedTask>& last = last_[made.subject];
        if (time == last.size()) {
          last.push_back(task);
        } else if (times(task).start > times(last[time]).start) {
          last[time] = task;
        }
      }
  }
}

const Work* Recorded::work(ExecutedTask task) const {
  const Step& made = step(task);
  if (made.kind == StepKind::Meet) return &workload_.works[workload_.meetings[MeetingId(made.subject)].work];
  return made.subject == kNoStep ? nullptr : &workload_.works[WorkId(made.subject)];
}

ExecutedTask Recorded::last_party(ExecutedTask task) const {
  const Step& made = step(task);
  if (made.kind != StepKind::Meet) return task;
  return last_[made.subject][meeting_[task.agent.index()][script(task.agent).ordinal(task.place)]];
}

}  // namespace weft
