// Dependencies that compiled programs once lacked, each in the smallest program that shows it.
#include <gtest/gtest.h>

#include "program/verify.h"
#include "program_cases.h"

namespace weft {
namespace {

// A chain of linear layers and relus with a loss, one device per stage; without gradient clipping by default.
ProgramCase chain(int layers, const ScheduleOptions& options, bool clipped = false, MemoryPlan memory = {},
                  int devices = 1) {
  GraphBuilder b("chain");
  TensorId x = b.input("x", DType::F32, {4, 8});
  for (int layer = 0; layer < layers; ++layer) {
    auto scope = b.scope(fmt::format("layers.{}", layer));
    x = b.op1(OpKind::Linear, "fc", {x, b.parameter("weight", DType::F32, {8, 8})});
    x = b.op1(OpKind::Unary, "relu", {x}, {{"fn", "relu"}});
  }
  const auto terms = b.op(OpKind::CrossEntropy, "entropy", {x, b.input("labels", DType::I64, {4})});
  b.result(b.op1(OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  TrainingOptions training_options;
  if (!clipped) training_options.clip_norm = std::nullopt;
  TrainingGraph training = make_training_graph(std::move(b).freeze().value(), training_options).value();
  const Graph& graph = training.graph;

  Schedule schedule = make_schedule(options).value();
  Placing placing;
  for (std::int32_t stage = 0; stage < schedule.stages(); ++stage) {
    std::vector<DeviceId> members;
    for (int i = 0; i < devices; ++i)
      members.emplace_back(static_cast<std::size_t>(schedule.place_of(0, stage).rank * devices + i));
    placing.meshes.push_back(Mesh::make({{"dp", devices}}, members).value());
    placing.stage_of.push_back(stage);
  }
  placing.mesh_of.resize(graph.ops().size(), MeshId(0));
  std::size_t stage = 0;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    if (const std::string name = graph.name(op); name.starts_with("layers."))
      stage = static_cast<std::size_t>(std::stoi(name.substr(7)) * schedule.stages() / layers);
    placing.mesh_of[op] = MeshId(stage);
  }
  ShardingChoices choices{{{}}, {{}}, {""}};
  for (TensorId id : graph.tensors().ids())
    if (graph.tensors()[id].kind == TensorKind::Input && !graph.tensors()[id].type.shape.empty())
      choices.inputs[0][id] = {0};
  Program program = compile(training, placing, plan_sharding(training, placing, choices).value(), {memory, {}},
                            RecomputeRegions::none(graph))
                        .value();
  return {std::move(training), std::move(program), std::move(schedule)};
}

std::string problem(const ProgramCase& of) {
  const Status status = verify(of.program, of.training.graph, of.schedule);
  return status.ok() ? "" : status.error().message;
}

TEST(CompiledWaits, OneStageWithoutClippingPasses) { EXPECT_EQ(problem(chain(1, {"gpipe", 1, 2, 0})), ""); }

// The clip scale is read by every optimizer operator; its free must wait for all of them.
TEST(CompiledWaits, TheFreeOfTheClipScaleWaitsForTheOptimizer) {
  EXPECT_EQ(problem(chain(1, {"gpipe", 1, 2, 0}, true)), "");
}

// Stage 0 sends its relu's output in forward and keeps it for backward; the free, in backward, must wait for the send.
TEST(CompiledWaits, TheFreeOfASavedTensorWaitsForItsSend) { EXPECT_EQ(problem(chain(2, {"1f1b", 2, 4, 0})), ""); }

// The gradient of a layer's output is read by grad_weight (weight part) and grad_input. A split backward pass executes
// the weight part later, so its free must wait for both, not only for the one issued last in a whole backward pass.
TEST(CompiledWaits, FreesOfASplitBackwardWaitForBothParts) {
  ProgramCase split = chain(4, {"zb-h1", 2, 4, 0});
  for (const StageProgram& stage : split.program.stages)  // without the sends of the test above
    for (InstructionId id : stage.forward)
      if (std::holds_alternative<Send>(split.program.instructions[id].what))
        for (Instruction& each : split.program.instructions)
          if (const auto* free = std::get_if<Free>(&each.what))
            for (BufferId sent : reads_of(split.program, split.program.instructions[id]))
              if (split.program.buffers[sent].memory == free->buffer) each.after.push_back(id);
  EXPECT_EQ(problem(split), "");
}

// Neighbours in a V exchange activations of one chunk and gradients of the other, sent in one order and received in
// another; a single stream per side would deadlock.
TEST(CompiledWaits, ZeroBubbleVComesToTheEnd) {
  ProgramCase vee = chain(4, {"zb-v", 2, 4, 0});
  EXPECT_EQ(problem(vee), "");
}

// Gradients in the host's memory that are reduced over replicas: the steps of a bucket include a copy.
TEST(CompiledWaits, ReducedGradientsOnTheHostCompile) {
  MemoryPlan memory;
  memory.offload[static_cast<std::size_t>(Stored::Gradients)] = true;
  EXPECT_EQ(problem(chain(1, {"gpipe", 1, 2, 0}, false, memory, 2)), "");
}

}  // namespace
}  // namespace weft
