// An instruction alone takes the time that the cost model gives, for every kind of instruction.
#include <gtest/gtest.h>

#include <map>

#include "cost/analytic.h"
#include "forecast/forecast.h"
#include "price/communications.h"

namespace weft {
namespace {

// The time of the program with only these instructions, run once: on each pipeline rank those of its meshes.
Picoseconds time_alone(const Plan& plan, const CompiledStrategy& compiled, const std::vector<InstructionId>& kept) {
  Program program = compiled.program;
  for (StageProgram& stage : program.stages) {
    const auto take = [&](const std::vector<InstructionId>& from) {
      std::vector<InstructionId> taken;
      for (InstructionId id : from)
        if (std::find(kept.begin(), kept.end(), id) != kept.end()) taken.push_back(id);
      return taken;
    };
    std::vector<InstructionId> forward = take(stage.forward), backward = take(stage.backward);
    forward.insert(forward.end(), backward.begin(), backward.end());
    stage = {std::move(forward), {}};
  }
  std::vector<InstructionId> step;
  for (InstructionId id : program.step)
    if (std::find(kept.begin(), kept.end(), id) != kept.end()) step.push_back(id);
  program.step = step;
  for (InstructionId id : kept) {
    program.instructions[id].after.clear();
    program.instructions[id].guard = Guard::Always;
  }
  Schedule schedule = compiled.schedule;
  schedule.micro_batches = 1;
  schedule.route_of.resize(1);
  for (std::vector<Action>& actions : schedule.actions) actions = {{Body::Forward, 0, 0, false}};
  SoftwareStack stack = plan.stack();
  stack.graph_capture.value = true;
  const AnalyticCost cost(stack);
  const Priced priced = price(program, schedule, plan.training(), plan.cluster(), cost, stack).value();
  return simulate(priced.workload).value().makespan;
}

Picoseconds cost_of(const Plan& plan, const CompiledStrategy& compiled, InstructionId id) {
  SoftwareStack stack = plan.stack();
  stack.graph_capture.value = true;
  const AnalyticCost cost(stack);
  const Instruction& instruction = compiled.program.instructions[id];
  if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
    const Mesh& mesh = compiled.program.meshes[instruction.mesh];
    const Signature& signature = plan.training().graph.signature(compute->op);
    Picoseconds most = 0;
    for (int position = 0; position < mesh.size(); ++position) {
      const AxisSlices slices = axis_slices(signature, compute->sharding, mesh, position);
      std::vector<std::int64_t> extents;
      for (const AxisSlice& slice : slices) extents.push_back(slice.size());
      most = std::max(
          most,
          cost
              .compute(ComputeQuery{
                  &signature, extents, &plan.cluster().spec(mesh.devices()[0]), {}, attended_share(signature, slices)})
              .time);
    }
    return most;
  }
  Communications communications(compiled.program, plan.training().graph, plan.cluster(), cost);
  const KindId kind = communications.kind_of(instruction);
  if (!kind.valid()) return 0;
  Picoseconds most = 0;
  for (CommGroupId group : communications.kinds()[kind].group_at)
    if (group.valid() && !communications.groups()[group].local)
      most = std::max(most, isolated_time(communications.cost_of(instruction, communications.groups()[group])));
  return most;
}

TEST(Isolated, EveryKindOfInstructionTakesWhatTheCostModelSays) {
  const std::vector<PlanRequest> requests = {
      {.model = "llama3-8b:layers=2", .cluster = "dgx-h100:1", .strategy = "tp=4,pp=2,ga=2", .seq = 1024},
      {.model = "llama3-8b:layers=2", .cluster = "dgx-h100:2", .strategy = "tp=2,dp=8,zero=3", .seq = 1024},
      {.model = "mixtral-8x7b:layers=1", .cluster = "dgx-h100:1", .strategy = "ep=8", .seq = 512},
      {.model = "resnet50", .cluster = "dgx-a100:1", .strategy = "dp=4,h=2"},
  };
  std::map<std::string, int> checked;  // by kind of instruction
  for (const PlanRequest& request : requests) {
    const Plan plan = make_plan(request).value();
    const CompiledStrategy compiled = compile_plan(plan).value();
    const Program& program = compiled.program;
    std::map<std::string, int> here;
    for (InstructionId id : program.instructions.ids()) {
      const Instruction& instruction = program.instructions[id];
      if (std::holds_alternative<Free>(instruction.what) || std::holds_alternative<Receive>(instruction.what)) continue;
      // The first term of an accumulation takes no time in the first micro-batch, which is the one run here.
      if (const auto* compute = std::get_if<Compute>(&instruction.what); compute && compute->begins) continue;
      std::string kind = sort_of(program, plan.training().graph, id);
      if (const auto* compute = std::get_if<Compute>(&instruction.what))
        kind += plan.training().graph.signature(compute->op).gradient;
      if (++here[kind] > 1) continue;  // one of each kind
      std::vector<InstructionId> alone = {id};
      if (const auto* send = std::get_if<Send>(&instruction.what))
        for (InstructionId other : program.instructions.ids())
          if (const auto* receive = std::get_if<Receive>(&program.instructions[other].what))
            if (receive->transfer == send->transfer) alone.push_back(other);
      EXPECT_EQ(time_alone(plan, compiled, alone), cost_of(plan, compiled, id)) << request.model << " " << kind;
      ++checked[kind];
    }
  }
  for (const char* kind : {"linear", "lineargrad_weight", "attention", "adam", "all-gather over tp",
                           "reduce-scatter over tp", "all-to-all over ep", "send", "halo-exchange over h"})
    EXPECT_GT(checked[kind], 0) << kind;
  EXPECT_GT(checked.size(), 40u);
}

}  // namespace
}  // namespace weft
