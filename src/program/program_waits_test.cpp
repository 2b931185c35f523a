// What compiled programs do not yet wait for, each in the smallest program that shows it. Enable a test with its mend;
// --gtest_also_run_disabled_tests shows the verifier's words.
#include <gtest/gtest.h>

#include "program/verify.h"
#include "program_cases.h"

namespace weft {
namespace {

// A chain of linear layers and relus with a loss, one device per stage; unclipped unless told.
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

// The clip scale is read by every optimizer operator; its free waits for none of them.
TEST(CompiledWaits, TheFreeOfTheClipScaleWaitsForTheOptimizer) {
  EXPECT_EQ(problem(chain(1, {"gpipe", 1, 2, 0}, true)), "");
}

// Stage 0 sends its relu's output in forward and keeps it for backward; the free, in backward, does not wait for the
// send.
TEST(CompiledWaits, TheFreeOfASavedTensorWaitsForItsSend) { EXPECT_EQ(problem(chain(2, {"1f1b", 2, 4, 0})), ""); }

// The gradient of a layer's output is read by grad_weight (weight part) and grad_input; its free waits for the one
// issued last when backward is whole, but a split backward plays the weight part after it.
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

// Between neighbours of a V go activations of one chunk and gradients of the other, in one order where they are sent
// and in another where they are received; one stream for each side blocks.
TEST(CompiledWaits, ZeroBubbleVComesToTheEnd) {
  ProgramCase vee = chain(4, {"zb-v", 2, 4, 0});
  EXPECT_EQ(problem(vee), "");
}

// Gradients in the host's memory that are reduced over replicas: compile throws std::bad_variant_access, since a copy
// stands among the steps of a bucket.
TEST(CompiledWaits, ReducedGradientsOnTheHostCompile) {
  MemoryPlan memory;
  memory.offload[static_cast<std::size_t>(Stored::Gradients)] = true;
  EXPECT_EQ(problem(chain(1, {"gpipe", 1, 2, 0}, false, memory, 2)), "");
}

}  // namespace
}  // namespace weft
