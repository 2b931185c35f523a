#include "report/timeline_columns.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace weft {
namespace {

constexpr std::array<std::string_view, 5> kBodyNames = {"forward", "backward", "backward, inputs", "backward, weights",
                                                        "step"};

std::size_t body_number(const IssuedBody& issued) {
  if (issued.action == IssuedBody::kStep) return 4;
  if (issued.part == Body::Forward) return 0;
  if (issued.part == Body::BackwardInput) return 2;
  return issued.part == Body::BackwardWeight ? 3 : 1;
}

}  // namespace

std::string_view body_name(const IssuedBody& issued) { return kBodyNames[body_number(issued)]; }

Result<TimelineColumns> timeline_columns(const Plan& plan, const PlayedPlan& played, std::vector<std::int64_t> ranks) {
  if (!played.recorded) return error("the run has no timeline: it was not recorded");
  const std::vector<DeviceId> devices = plan.ranks();
  std::unordered_map<std::uint32_t, std::int64_t> rank_of;
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    rank_of[devices[rank].index()] = static_cast<std::int64_t>(rank);
  std::vector<AgentId> agent_of(devices.size());
  for (const AgentId agent : played.priced.agents.ids())
    for (const DeviceId device : played.priced.agents[agent].devices)
      agent_of[static_cast<std::size_t>(rank_of.at(device.index()))] = agent;
  if (ranks.empty()) {
    for (const AgentId agent : representatives(plan, played)) {
      std::int64_t first = static_cast<std::int64_t>(devices.size());
      for (const DeviceId device : played.priced.agents[agent].devices)
        first = std::min(first, rank_of.at(device.index()));
      ranks.push_back(first);
    }
  }
  for (const std::int64_t rank : ranks)
    if (rank < 0 || rank >= static_cast<std::int64_t>(devices.size()))
      return error("rank {}: the plan has ranks 0 to {}", rank, devices.size() - 1);

  const Program& program = played.compiled.program;
  const Graph& graph = plan.training().graph;
  const Workload& workload = played.priced.workload;
  const IdVec<InstructionId, Activity> activity_of = activities_of(program, graph);
  const Timeline timeline(workload, played.run);
  TimelineColumns made;
  for (int i = 0; i < kActivities; ++i) made.activities.emplace_back(name_of(static_cast<Activity>(i)));
  for (int i = 0; i < kStreams; ++i) made.streams.emplace_back(name_of(static_cast<Stream>(i)));
  made.bodies.assign(kBodyNames.begin(), kBodyNames.end());
  std::size_t rows = 0;
  for (const std::int64_t rank : ranks)
    rows += played.run.agents[agent_of[static_cast<std::size_t>(rank)]].tasks.size();
  for (auto* column :
       {&made.rank, &made.pipeline_rank, &made.micro_batch, &made.operation, &made.activity, &made.stream, &made.body})
    column->reserve(rows);
  for (auto* column : {&made.issued, &made.start, &made.work, &made.end}) column->reserve(rows);

  std::vector<std::int32_t> number_of(program.instructions.size(), -1);  // of the instruction's name
  std::unordered_map<std::string, std::int32_t> known;
  const auto number = [&](InstructionId instruction) {
    std::int32_t& own = number_of[instruction.index()];
    if (own >= 0) return own;
    const auto [found, added] =
        known.try_emplace(title_of(program, graph, instruction), static_cast<std::int32_t>(made.operations.size()));
    if (added) made.operations.push_back(found->first);
    return own = found->second;
  };
  for (const std::int64_t rank : ranks) {
    const AgentId agent_id = agent_of[static_cast<std::size_t>(rank)];
    const Agent& agent = workload.agents[agent_id];
    const std::int32_t pipeline_rank = played.priced.agents[agent_id].rank;
    const std::vector<IssuedBody>& issued = played.priced.issued[static_cast<std::size_t>(pipeline_rank)];
    timeline.for_each(agent_id, [&](const Span& span) {
      const InstructionId instruction(span.instruction);
      const IssuedBody& body = issued[span.play];
      made.rank.push_back(static_cast<std::int32_t>(rank));
      made.pipeline_rank.push_back(pipeline_rank);
      made.micro_batch.push_back(body.action == IssuedBody::kStep ? -1 : agent.plays[span.play].micro_batch);
      made.operation.push_back(number(instruction));
      made.activity.push_back(static_cast<std::int32_t>(activity_of[instruction]));
      made.stream.push_back(agent.tasks[span.task].stream);
      made.body.push_back(static_cast<std::int32_t>(body_number(body)));
      made.issued.push_back(span.issued);
      made.start.push_back(span.start);
      made.work.push_back(span.work);
      made.end.push_back(span.end);
    });
  }
  return made;
}

}  // namespace weft
