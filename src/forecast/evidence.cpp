#include "forecast/evidence.h"

#include <cmath>
#include <map>

#include "price/instruction_pricer.h"

namespace weft {
namespace {

class Weighing {
 public:
  Weighing(const Plan& plan, const PlayedPlan& played, const CostModel& cost)
      : program_(played.compiled.program),
        graph_(plan.training().graph),
        pricer_(program_, graph_, plan.cluster(), cost, plan.stack()),
        cluster_(plan.cluster()) {}

  StepEvidence run(const PlayedPlan& played) {
    AgentId last(0);
    while (played.run.agents[last].end < played.run.makespan) ++last;
    device_ = played.priced.agents[last].devices.front();
    const Agent& agent = played.priced.workload.agents[last];
    std::map<std::uint32_t, std::int64_t> times;  // executions, by instruction
    const IdVec<BodyId, PlayedRange> ranges = played_ranges(agent);
    for (const Play& play : agent.plays)
      for (TaskId id : agent.bodies[play.body])
        if (const Task& task = agent.tasks[id];
            works_in(task, ranges[play.body], play.micro_batch) && task.label < program_.instructions.size())
          ++times[task.label];
    for (const auto& [label, count] : times) weigh(InstructionId(label), count);
    StepEvidence evidence;
    double all = 0, squares = 0;
    for (double part : by_origin_) all += part;
    for (const auto& [sort, deviation] : deviations_) squares += deviation * deviation;
    if (all == 0) return evidence;
    for (std::size_t i = 0; i < by_origin_.size(); ++i) evidence.shares[i] = by_origin_[i] / all;
    evidence.uncertainty = std::sqrt(squares) / all;
    return evidence;
  }

 private:
  void weigh(InstructionId id, std::int64_t count) {
    const Instruction& instruction = program_.instructions[id];
    const Mesh& mesh = program_.meshes[instruction.mesh];
    const int position = mesh.position_of(device_);
    if (position < 0) return;
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      const ComputeCost cost = pricer_.compute_cost(*compute, mesh, position);
      return add(id, count, cost.time, cost.evidence);
    }
    if (const auto* combine = std::get_if<Combine>(&instruction.what)) {
      const ComputeCost cost = pricer_.combine_cost(*combine, mesh, cluster_.spec(device_));
      return add(id, count, cost.time, cost.evidence);
    }
    const KindId kind = pricer_.communications().kind_of(instruction);
    if (!kind.valid()) return;
    const CommGroupId group = pricer_.group_of(instruction, kind, device_, position);
    if (!group.valid()) return;
    const CommunicateCost& cost =
        pricer_.communications().cost_of(instruction, pricer_.communications().groups()[group]);
    add(id, count, isolated_time(cost), cost.evidence);
  }

  void add(InstructionId id, std::int64_t count, Picoseconds time, const Evidence& evidence) {
    if (time == 0) return;
    const double all = static_cast<double>(count) * static_cast<double>(time);
    by_origin_[static_cast<std::size_t>(evidence.origin)] += all;
    deviations_[sort_of(program_, graph_, id)] += all * static_cast<double>(evidence.spread);
  }

  const Program& program_;
  const Graph& graph_;
  InstructionPricer pricer_;
  const Cluster& cluster_;
  DeviceId device_;
  std::array<double, kOrigins> by_origin_ = {};
  std::map<std::string, double> deviations_;  // by sort of work
};

}  // namespace

StepEvidence evidence_of(const Plan& plan, const PlayedPlan& played, const CostModel& cost) {
  return Weighing(plan, played, cost).run(played);
}

}  // namespace weft
