#include "simulate/breakdown.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

enum class Doing : std::uint8_t { Compute, Communicate, Wait };

struct Change {
  Picoseconds time = 0;
  Doing doing = Doing::Compute;
  std::uint8_t stream = 0;
  int by = 0;  // +1: starts, −1: ends
};

}  // namespace

Picoseconds Breakdown::total() const {
  return std::accumulate(communication.begin(), communication.end(), compute + waiting + host_bound + done);
}

Breakdown break_down(const Recorded& recorded, AgentId agent) {
  const AgentScript& script = recorded.script(agent);
  std::vector<Change> changes;
  const auto add = [&](Doing doing, std::uint8_t stream, Picoseconds from, Picoseconds to) {
    if (from == to) return;
    changes.push_back({from, doing, stream, 1});
    changes.push_back({to, doing, stream, -1});
  };
  for (std::uint32_t play = 0; play < script.plays(); ++play)
    for (std::uint32_t position = 0; position < script.script(play).steps.size(); ++position) {
      const ExecutedTask task{agent, {play, position}};
      const Step& step = recorded.step(task);
      const TaskTimes& times = recorded.times(task);
      const Picoseconds start = recorded.work_start(task);
      if (step.kind == StepKind::Compute) {
        add(Doing::Compute, step.stream, start, times.end);
      } else {
        add(Doing::Wait, step.stream, times.start, start);
        add(Doing::Communicate, step.stream, start, times.end);
      }
    }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });

  Breakdown breakdown;
  int computing = 0, waiting = 0;
  std::array<int, kMaxStreams> communicating{};
  Picoseconds now = 0;
  const Picoseconds end = recorded.run().agents[agent].end;
  const auto spend_until = [&](Picoseconds time) {
    const Picoseconds spent = time - now;
    const auto stream = std::find(communicating.begin(), communicating.end(), 1);
    if (computing > 0) {
      breakdown.compute += spent;
    } else if (stream != communicating.end()) {
      breakdown.communication[static_cast<std::size_t>(stream - communicating.begin())] += spent;
    } else if (waiting > 0) {
      breakdown.waiting += spent;
    } else {
      breakdown.host_bound += std::max<Picoseconds>(0, std::min(time, end) - now);
      breakdown.done += std::max<Picoseconds>(0, time - std::max(now, end));
    }
    now = time;
  };
  for (const Change& change : changes) {
    spend_until(change.time);
    int& count = change.doing == Doing::Compute ? computing
                 : change.doing == Doing::Wait  ? waiting
                                                : communicating[change.stream];
    count += change.by;
  }
  spend_until(recorded.run().makespan);
  return breakdown;
}

IdVec<FlowLinkId, double> link_utilisation(const Workload& workload, const Run& run) {
  IdVec<FlowLinkId, double> shares(workload.links.size());
  for (const FlowLinkId id : workload.links.ids())
    if (run.makespan > 0 && workload.links[id].capacity > 0)
      shares[id] = static_cast<double>(run.carried[id]) * 1e12 / static_cast<double>(workload.links[id].capacity) /
                   static_cast<double>(run.makespan);
  return shares;
}

}  // namespace weft
