#include "validate/run_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

namespace weft {
namespace {

using runtime::HostWait;
using runtime::IssuedInstruction;
using runtime::Nanoseconds;
using runtime::RankTimeline;
using runtime::RecordedStep;

std::unordered_map<std::uint32_t, std::size_t> ranks_by_device(const Plan& plan) {
  std::unordered_map<std::uint32_t, std::size_t> ranks;
  const std::vector<DeviceId> devices = plan.ranks();
  for (std::size_t rank = 0; rank < devices.size(); ++rank) ranks[devices[rank].index()] = rank;
  return ranks;
}

Seconds seconds(Picoseconds time) { return {seconds_of(time)}; }

// One rank's step by the clock of all.
class RankStep {
 public:
  RankStep(const RecordedStep& step, Nanoseconds origin)
      : step_(step), origin_(origin), waited_(step.issued.size(), nullptr) {
    for (const HostWait& wait : step.waits) waited_[wait.issue] = &wait;
  }
  Picoseconds at(Nanoseconds time) const { return (time - step_.clock.ahead - origin_) * 1000; }
  // When the communication of an issue, or its computation, is over.
  Picoseconds end_of(std::size_t issue) const {
    const IssuedInstruction& issued = step_.issued[issue];
    const HostWait* const wait = waited_[issue];
    return at(std::max(issued.end, wait && wait->begin <= issued.complete ? wait->unpacked : issued.complete));
  }
  MeasuredRun::Host host(const Program& program) const {
    MeasuredRun::Host host;
    for (const IssuedInstruction& each : step_.issued) {
      host.bytes.emplace_back(at(each.end), each.held.value);
      const auto& what = program.instructions[each.instruction].what;
      if (std::holds_alternative<Communicate>(what) || std::holds_alternative<Send>(what) ||
          std::holds_alternative<Receive>(what))
        host.slices.push_back({at(each.begin), at(each.end), each.instruction, each.micro_batch, false});
    }
    for (const HostWait& wait : step_.waits) {
      const IssuedInstruction& issued = step_.issued[wait.issue];
      host.slices.push_back({at(wait.begin), at(wait.unpacked), issued.instruction, issued.micro_batch, true});
    }
    std::stable_sort(host.slices.begin(), host.slices.end(),
                     [](const auto& a, const auto& b) { return a.from != b.from ? a.from < b.from : a.to > b.to; });
    return host;
  }

 private:
  const RecordedStep& step_;
  const Nanoseconds origin_;
  std::vector<const HostWait*> waited_;
};

RankParts parts_of(const StepBreakdown& breakdown) {
  Picoseconds busy = 0, communication = 0;
  for (int i = 0; i < kActivities; ++i)
    (communicates(static_cast<Activity>(i)) ? communication : busy) += breakdown.active[static_cast<std::size_t>(i)];
  return {seconds(busy), seconds(communication), seconds(breakdown.bubble + breakdown.waiting),
          seconds(breakdown.host_bound + breakdown.done)};
}

// The name of what an instruction works on, layers joined, and its sort.
std::pair<std::string, std::string> group_of(const Program& program, const Graph& graph, InstructionId id) {
  const std::string sort = sort_of(program, graph, id);
  std::string name = without_numbers(title_of(program, graph, id));
  if (name.starts_with(sort)) name = name.substr(sort.size());
  for (std::string_view between : {" of ", " "})
    if (name.starts_with(between)) name = name.substr(between.size());
  return {name, sort};
}

}  // namespace

Result<MeasuredRun> measured_run(const Plan& plan, const PlayedPlan& played, const std::vector<RankTimeline>& timelines,
                                 std::size_t step) {
  const Workload& workload = played.priced.workload;
  const Program& program = played.compiled.program;
  const auto rank_of = ranks_by_device(plan);
  const Timeline predicted(workload, played.run);
  const IdVec<InstructionId, Activity> activities = activities_of(program, plan.training().graph);
  Nanoseconds origin = std::numeric_limits<Nanoseconds>::max();
  for (const RankTimeline& each : timelines) {
    if (step >= each.steps.size()) return error("rank {} did not record step {}", each.rank, step + 1);
    origin = std::min(origin, each.steps[step].begin - each.steps[step].clock.ahead);
  }
  MeasuredRun made;
  for (AgentId agent : workload.agents.ids()) {
    const std::size_t rank = rank_of.at(played.priced.agents[agent].devices.front().index());
    if (rank >= timelines.size()) return error("rank {} has no timeline", rank);
    const RecordedStep& recorded = timelines[rank].steps[step];
    const RankStep own(recorded, origin);
    AgentRun& run = made.run.agents[made.run.agents.push_back({})];
    std::array<TaskTimes*, kMaxStreams> last{};  // the last task of a stream
    run.tasks.reserve(played.run.agents[agent].tasks.size());
    std::size_t next = 0;
    Status same = Ok{};
    predicted.for_each(agent, [&](const Span& span) {
      const auto is_free = [&](const IssuedInstruction& each) {
        return std::holds_alternative<Free>(program.instructions[each.instruction].what);
      };
      while (next < recorded.issued.size() && is_free(recorded.issued[next])) ++next;
      if (!same.ok()) return;
      const std::int32_t micro_batch = workload.agents[agent].plays[span.play].micro_batch;
      if (next == recorded.issued.size() || recorded.issued[next].instruction.index() != span.instruction ||
          recorded.issued[next].micro_batch != micro_batch) {
        same = error("rank {} did not play {} of micro-batch {} where the program has it", rank,
                     title_of(program, plan.training().graph, InstructionId(span.instruction)), micro_batch);
        return;
      }
      const Picoseconds issued = own.at(recorded.issued[next].begin);
      TaskTimes*& before = last[workload.agents[agent].tasks[span.task].stream];
      // Hosts keep `after` alone: one may compute while a communication of the same stream is under way, which is then
      // seen up to there. Communications of a stream are done one after the other.
      if (before && !communicates(activities[InstructionId(span.instruction)]))
        before->end = std::max(before->start, std::min(before->end, issued));
      const Picoseconds start = before ? std::max(issued, before->end) : issued;
      run.tasks.push_back({issued, start, std::max(start, own.end_of(next))});
      before = &run.tasks.back();
      run.end = std::max(run.end, before->end);
      ++next;
    });
    WEFT_TRY_OK(same);
    made.run.makespan = std::max({made.run.makespan, run.end, own.at(recorded.end)});
    made.run.tasks += static_cast<std::int64_t>(run.tasks.size());
    made.hosts.push_back(own.host(program));
  }
  return made;
}

Result<RunComparison> compare_run(const Plan& plan, const PlayedPlan& played, const Forecast& forecast,
                                  const std::vector<RankTimeline>& timelines) {
  const Workload& workload = played.priced.workload;
  const Program& program = played.compiled.program;
  const Graph& graph = plan.training().graph;
  const auto rank_of = ranks_by_device(plan);
  std::size_t recorded = timelines.empty() ? 0 : timelines.front().steps.size();
  for (const RankTimeline& each : timelines) recorded = std::min(recorded, each.steps.size());
  if (recorded == 0) return error("no step was recorded by all ranks");

  RunComparison made;
  made.first_step = recorded > 1 ? 1 : 0;
  std::vector<std::pair<Picoseconds, std::size_t>> lengths;
  for (auto step = static_cast<std::size_t>(made.first_step); step < recorded; ++step) {
    WEFT_TRY(const MeasuredRun run, measured_run(plan, played, timelines, step));
    lengths.emplace_back(run.run.makespan, step);
    made.steps.push_back(seconds(run.run.makespan));
  }
  std::sort(lengths.begin(), lengths.end());
  const auto [median, chosen] = lengths[(lengths.size() - 1) / 2];
  made.step = static_cast<std::int64_t>(chosen);
  made.measured = seconds(median);
  made.predicted = {forecast.step_s};
  made.assumptions = forecast.assumptions;
  WEFT_TRY(made.run, measured_run(plan, played, timelines, chosen));

  const Timeline sides[] = {Timeline(workload, played.run), Timeline(workload, made.run.run)};
  const IdVec<InstructionId, Activity> activities = activities_of(program, graph);
  std::map<std::pair<std::string, std::string>, InstructionTimes> groups;
  IdVec<InstructionId, InstructionTimes*> group_at(program.instructions.size(), nullptr);
  const double ranks = static_cast<double>(workload.agents.size());
  made.ranks.resize(workload.agents.size());
  for (AgentId agent : workload.agents.ids()) {
    const std::size_t rank = rank_of.at(played.priced.agents[agent].devices.front().index());
    RunComparison::Rank& of = made.ranks[rank];
    of.predicted = parts_of(break_down_step(sides[0], agent, activities, program));
    of.measured = parts_of(break_down_step(sides[1], agent, activities, program));
    for (std::size_t step = static_cast<std::size_t>(made.first_step); step < recorded; ++step)
      of.measured_peak = std::max(of.measured_peak, timelines[rank].steps[step].peak);
    const runtime::ClockOffset& clock = timelines[rank].steps[chosen].clock;
    of.clock_ahead = {static_cast<double>(clock.ahead) * 1e-9};
    of.round_trip = {static_cast<double>(clock.round_trip) * 1e-9};
    for (const bool predicted : {true, false})
      sides[predicted ? 0 : 1].for_each(agent, [&](const Span& span) {
        InstructionTimes*& group = group_at[InstructionId(span.instruction)];
        if (!group) {
          const auto key = group_of(program, graph, InstructionId(span.instruction));
          group = &groups.try_emplace(key, InstructionTimes{key.first, key.second, 0, {}, {}}).first->second;
        }
        if (predicted) group->count += 1 / ranks;
        (predicted ? group->predicted : group->measured) += Seconds{seconds_of(span.end - span.work) / ranks};
      });
  }
  for (const ClassForecast& each : forecast.memory)
    for (std::int64_t rank : each.ranks)
      made.ranks[static_cast<std::size_t>(rank)].predicted_peak = each.allocated.total();
  for (auto& [key, group] : groups) made.instructions.push_back(std::move(group));
  std::stable_sort(made.instructions.begin(), made.instructions.end(), [](const auto& a, const auto& b) {
    return std::abs(a.difference().value) > std::abs(b.difference().value);
  });
  return made;
}

}  // namespace weft
