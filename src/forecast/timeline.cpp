#include "forecast/timeline.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"

namespace weft {
namespace {

// Whether the collective dispatches rows to experts or combines them.
bool exchanges_rows(const Program& program, const Graph& graph, const Communicate& communicate) {
  if (communicate.collective != Collective::AllToAll) return false;
  const auto routes = [&](OpId op) {
    const OpKind kind = graph.kind(op);
    return kind == OpKind::Dispatch || kind == OpKind::DispatchWeights || kind == OpKind::Combine ||
           kind == OpKind::WeighRows || kind == OpKind::ExpertLinear;
  };
  const TensorId rows = program.buffers[communicate.inputs.front()].tensor;
  const auto uses = graph.uses(rows);
  const OpId producer = graph.tensors()[rows].producer;
  return (producer.valid() && routes(producer)) ||
         std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return routes(use.op); });
}

Activity activity_of(const Program& program, const Graph& graph, const Instruction& instruction) {
  if (std::holds_alternative<Send>(instruction.what) || std::holds_alternative<Receive>(instruction.what))
    return Activity::Pipeline;
  if (std::holds_alternative<Copy>(instruction.what)) return Activity::Offload;
  const auto* communicate = std::get_if<Communicate>(&instruction.what);
  if (!communicate) return Activity::Compute;
  if (instruction.stream == Stream::Data || instruction.mesh == program.world) return Activity::Data;
  if (exchanges_rows(program, graph, *communicate)) return Activity::Expert;
  // A collective whose axes include an expert axis is Expert, one over context axes alone is Context.
  const Mesh& mesh = program.meshes[instruction.mesh];
  bool context = true;
  for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    if ((communicate->axes >> axis & 1u) == 0) continue;
    const std::string& name = mesh.axes()[axis].name;
    if (name == "ep") return Activity::Expert;
    context = context && (name == "cp" || name == "ecp");
  }
  return context ? Activity::Context : Activity::Tensor;
}

// Whether the span waits for another pipeline stage.
bool joins_stages(const Program& program, const IdVec<InstructionId, Activity>& activities, const Span& span) {
  const InstructionId id(span.instruction);
  return activities[id] == Activity::Pipeline || program.instructions[id].mesh == program.world;
}

}  // namespace

std::string_view name_of(Activity activity) {
  constexpr std::string_view names[] = {"compute", "optimizer", "tensor",   "context",
                                        "expert",  "data",      "pipeline", "offload"};
  return names[static_cast<std::size_t>(activity)];
}

IdVec<InstructionId, Activity> activities_of(const Program& program, const Graph& graph) {
  IdVec<InstructionId, Activity> activities(program.instructions.size());
  for (InstructionId id : program.instructions.ids()) {
    activities[id] = activity_of(program, graph, program.instructions[id]);
    if (const auto* compute = std::get_if<Compute>(&program.instructions[id].what))
      if (graph.ops()[compute->op].phase == Phase::Step) activities[id] = Activity::Optimizer;
  }
  for (InstructionId id : program.step)
    if (activities[id] == Activity::Compute) activities[id] = Activity::Optimizer;
  return activities;
}

Timeline::Timeline(const Workload& workload, const Run& run)
    : workload_(workload), run_(run), begun_(workload.meetings.size()) {
  std::vector<std::uint32_t> held;
  for (AgentId agent : workload.agents.ids()) {
    held.assign(workload.meetings.size(), 0);
    std::size_t executed = 0;
    walk(agent, [&](std::uint32_t, TaskId, const Task& task, const TaskTimes& times) {
      ++executed;
      if (!task.meeting.valid()) return;
      std::vector<Picoseconds>& begun = begun_[task.meeting.index()];
      const std::uint32_t time = held[task.meeting.index()]++;
      if (time == begun.size()) begun.push_back(0);
      begun[time] = std::max(begun[time], times.start);
    });
    WEFT_CHECK(executed == run.agents[agent].tasks.size(), "agent {}: the run was not recorded, or is another's",
               agent.index());
  }
}

std::vector<Span> Timeline::spans(AgentId agent) const {
  std::vector<Span> list;
  list.reserve(run_.agents[agent].tasks.size());
  for_each(agent, [&](const Span& span) { list.push_back(span); });
  return list;
}

AgentId Timeline::last() const {
  for (AgentId agent : workload_.agents.ids())
    if (run_.agents[agent].end == run_.makespan) return agent;
  return AgentId(0);
}

void for_each_moment(std::span<const Span> spans, const Agent& agent, const IdVec<InstructionId, Activity>& activities,
                     const Program& program, Picoseconds agent_end, Picoseconds end,
                     const std::function<void(const Moment&)>& visit) {
  struct Change {
    Picoseconds time = 0;
    std::uint32_t span = 0;
    enum : std::uint8_t { Ends, Waits, Works } what = Ends;  // at one time, ends come first
  };
  std::vector<Change> changes;
  changes.reserve(2 * spans.size());
  for (std::uint32_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    if (span.start < span.work) changes.push_back({span.start, i, Change::Waits});
    if (span.work < span.end) changes.push_back({span.work, i, Change::Works});
    if (span.start < span.end) changes.push_back({span.end, i, Change::Ends});
  }
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.time != b.time ? a.time < b.time : a.what < b.what;
  });

  std::array<const Span*, kMaxStreams> works{}, waits{};
  const auto computes = [&](const Span& span) { return !communicates(activities[InstructionId(span.instruction)]); };
  const auto now_doing = [&]() -> std::pair<Doing, const Span*> {
    for (const Span* span : works)
      if (span && computes(*span)) return {Doing::Compute, span};
    for (const Span* span : works)
      if (span) return {Doing::Communicate, span};
    for (const Span* span : waits)
      if (span && joins_stages(program, activities, *span)) return {Doing::Bubble, span};
    for (const Span* span : waits)
      if (span) return {Doing::Wait, span};
    return {Doing::HostBound, nullptr};
  };
  Picoseconds now = 0;
  const auto pass_until = [&](Picoseconds time) {
    if (time <= now) return;
    const auto [doing, span] = now_doing();
    if (doing != Doing::HostBound) {
      visit({now, time, doing, span});
    } else {
      if (now < agent_end) visit({now, std::min(time, agent_end), doing, nullptr});
      if (time > agent_end) visit({std::max(now, agent_end), time, Doing::Done, nullptr});
    }
    now = time;
  };
  for (const Change& change : changes) {
    pass_until(change.time);
    const Span* span = &spans[change.span];
    const std::uint8_t stream = agent.tasks[span->task].stream;
    if (change.what == Change::Waits) waits[stream] = span;
    if (change.what != Change::Waits && waits[stream] == span) waits[stream] = nullptr;
    if (change.what == Change::Works) works[stream] = span;
    if (change.what == Change::Ends && works[stream] == span) works[stream] = nullptr;
  }
  pass_until(end);
}

Picoseconds StepBreakdown::total() const {
  return std::accumulate(active.begin(), active.end(), bubble + waiting + host_bound + done + imbalance);
}

StepBreakdown break_down_step(const Timeline& timeline, AgentId agent, const IdVec<InstructionId, Activity>& activities,
                              const Program& program) {
  StepBreakdown breakdown;
  const std::vector<Span> spans = timeline.spans(agent);
  const Run& run = timeline.run();
  for_each_moment(spans, timeline.workload().agents[agent], activities, program, run.agents[agent].end, run.makespan,
                  [&](const Moment& moment) {
                    const Picoseconds time = moment.to - moment.from;
                    switch (moment.doing) {
                      case Doing::Compute:
                      case Doing::Communicate:
                        breakdown[activities[InstructionId(moment.span->instruction)]] += time;
                        break;
                      case Doing::Bubble:
                        breakdown.bubble += time;
                        break;
                      case Doing::Wait:
                        breakdown.waiting += time;
                        break;
                      case Doing::HostBound:
                        breakdown.host_bound += time;
                        break;
                      case Doing::Done:
                        breakdown.done += time;
                    }
                  });
  return breakdown;
}

}  // namespace weft
