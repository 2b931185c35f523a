#include "simulate/critical_path.h"

#include <algorithm>
#include <optional>

#include "simulate/wide.h"

namespace weft {

using namespace engine;
namespace {

class Walk {
 public:
  explicit Walk(const Recorded& recorded) : recorded_(recorded) {}

  std::vector<Stretch> back_from(ExecutedTask last) {
    std::optional<ExecutedTask> task = last;
    while (task) task = before(*task);
    std::reverse(path_.begin(), path_.end());
    return std::move(path_);
  }

 private:
  // Adds the stretch of the task, and that of the host if its issue came last; returns the preceding task.
  std::optional<ExecutedTask> before(ExecutedTask task) {
    const Picoseconds start = recorded_.work_start(task), end = recorded_.times(task).end;
    const Work* work = recorded_.work(task);
    const bool computes = recorded_.step(task).kind == StepKind::Compute;
    const Picoseconds alone = work == nullptr ? 0 : isolated_time(*work, recorded_.workload().links);
    Stretch own{computes ? Spent::Compute : Spent::Communication, Waited::Nothing, task, start, start + alone};

    const ExecutedTask party = recorded_.last_party(task);
    Waited reason = Waited::Nothing;
    std::optional<ExecutedTask> previous = what_let_start(party, reason);
    own.waited = start == 0 ? Waited::Nothing : party != task ? Waited::Party : reason;
    lay({Spent::Sharing, alone > 0 ? Waited::Work : own.waited, task, start + alone, end});
    lay(own);
    if (reason == Waited::Host) return before_issue(party);
    return previous;
  }

  // The task that ended when this one took its stream.
  std::optional<ExecutedTask> what_let_start(ExecutedTask task, Waited& reason) const {
    const Picoseconds start = recorded_.times(task).start;
    if (start == 0) return std::nullopt;
    if (const auto ended = what_ended_at(task, start, reason)) return ended;
    // Two passes that hide each other's communication start together: what let the other one start let this one, too.
    if (recorded_.times(task).issued != start)
      for (const ExecutedTask& other : awaited_by(task))
        if (recorded_.times(other).start == start)
          if (const auto ended = what_ended_at(other, start, reason)) return ended;
    WEFT_CHECK(recorded_.times(task).issued == start, "agent {}: a task starts for no reason", task.agent.index());
    reason = Waited::Host;
    return std::nullopt;
  }

  std::vector<ExecutedTask> awaited_by(ExecutedTask task) const {
    std::vector<ExecutedTask> found;
    const AgentScript& script = recorded_.script(task.agent);
    for (const StepWait& wait : script.script(task.place.play).waits_at(task.place.position))
      if (ExecutedTask other{task.agent, {}}; script.find(wait, task.place.play, other.place)) found.push_back(other);
    return found;
  }

  // What the task waits for, or its predecessor in its stream, that ended at this time.
  std::optional<ExecutedTask> what_ended_at(ExecutedTask task, Picoseconds time, Waited& reason) const {
    if (const auto previous = previous_in_stream(task); previous && recorded_.times(*previous).end == time) {
      reason = Waited::Stream;
      return previous;
    }
    for (const ExecutedTask& other : awaited_by(task)) {
      if (recorded_.times(other).end != time) continue;
      reason = Waited::After;
      return other;
    }
    return std::nullopt;
  }

  // Follows the host back from the issue of the task; returns the task that delayed it.
  std::optional<ExecutedTask> before_issue(ExecutedTask task) {
    for (;;) {
      const Picoseconds issued = recorded_.times(task).issued, begun = issued - recorded_.step(task).host;
      lay({Spent::Host, begun == 0 ? Waited::Nothing : Waited::Host, task, begun, issued});
      if (begun == 0) return std::nullopt;
      // Usually the previous issue; else a task earlier in issue order that ended or began at that time.
      const auto previous = previous_issued(task);
      WEFT_CHECK(previous.has_value(), "agent {}: the host waits for nothing", task.agent.index());
      if (recorded_.times(*previous).issued == begun) {
        task = *previous;
        continue;
      }
      if (recorded_.step(*previous).host_waits && recorded_.times(*previous).end == begun) return previous;
      for (auto other = previous; other; other = previous_issued(*other)) {
        if (recorded_.times(*other).start != begun) continue;
        Waited reason = Waited::Nothing;
        const auto cause = what_let_start(*other, reason);
        if (reason != Waited::Host) return cause;
        task = *other;  // was issued at the same time
        break;
      }
      WEFT_CHECK(recorded_.times(task).issued == begun, "agent {}: the host waits for no reason", task.agent.index());
    }
  }

  std::optional<ExecutedTask> previous_issued(ExecutedTask task) const {
    if (!recorded_.script(task.agent).previous_issued(task.place)) return std::nullopt;
    return task;
  }

  std::optional<ExecutedTask> previous_in_stream(ExecutedTask task) const {
    const std::uint8_t stream = recorded_.step(task).stream;
    for (auto other = previous_issued(task); other; other = previous_issued(*other))
      if (recorded_.step(*other).stream == stream) return other;
    return std::nullopt;
  }

  void lay(const Stretch& stretch) {
    if (stretch.from < stretch.to) path_.push_back(stretch);
  }

  const Recorded& recorded_;
  std::vector<Stretch> path_;
};

}  // namespace

std::vector<Stretch> critical_path(const Recorded& recorded) {
  std::optional<ExecutedTask> last;
  for (const AgentId agent : recorded.workload().agents.ids()) {
    const AgentScript& script = recorded.script(agent);
    for (std::uint32_t play = 0; play < script.plays() && !last; ++play)
      for (std::uint32_t position = 0; position < script.script(play).steps.size() && !last; ++position)
        if (const ExecutedTask task{agent, {play, position}}; recorded.times(task).end == recorded.run().makespan)
          last = task;
  }
  if (!last) return {};
  return Walk(recorded).back_from(*last);
}

}  // namespace weft
