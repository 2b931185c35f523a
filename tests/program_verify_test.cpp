// The verifier finds what is wrong with a program: every kind of damage to a good one is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "models/models.h"
#include "program/verify.h"

namespace weft {
namespace {

using testing::HasSubstr;

// Two pipeline stages of two data-parallel devices each.
struct Good {
  TrainingGraph training;
  Program program;
  Schedule schedule = make_schedule({"1f1b", 2, 4, 0}).value();

  Good()
      : training(make_training_graph(
                     build_model("gpt2-124m:layers=2,hidden=8,heads=2,vocab=16", {.batch = 2, .seq = 4}).value())
                     .value()) {
    const Graph& graph = training.graph;
    Placing placing;
    for (std::size_t stage = 0; stage < 2; ++stage) {
      placing.meshes.push_back(Mesh::make({{"dp", 2}}, {DeviceId(2 * stage), DeviceId(2 * stage + 1)}).value());
      placing.stage_of.push_back(static_cast<int>(stage));
    }
    placing.mesh_of.resize(graph.ops().size(), MeshId(0));
    for (OpId op : graph.ops().ids())
      if (graph.name(op).starts_with("layers.1") || graph.name(op).starts_with("head")) placing.mesh_of[op] = MeshId(1);
    ShardingChoices choices{{{}}, {{}}, {""}};
    for (TensorId id : graph.tensors().ids())
      if (graph.tensors()[id].kind == TensorKind::Input && graph.tensors()[id].type.shape.size() == 2 &&
          graph.tensors()[id].type.shape[0] == 2)
        choices.inputs[0][id] = {0};
    program =
        compile(training, placing, plan_sharding(training, placing, choices).value(), {}, RecomputeRegions::none(graph))
            .value();
  }

  std::string problem() const {
    const Status status = verify(program, training.graph, schedule);
    return status.ok() ? "" : status.error().message;
  }
  // The first instruction of a body that holds T.
  template <class T>
  std::size_t first(const std::vector<InstructionId>& body) const {
    std::size_t i = 0;
    while (!std::holds_alternative<T>(program.instructions[body[i]].what)) ++i;
    return i;
  }
};

TEST(Verify, AGoodProgramPasses) { EXPECT_EQ(Good().problem(), ""); }

TEST(Verify, AMissingWriteIsFound) {
  Good good;
  auto& body = good.program.stages[0].forward;
  body.erase(body.begin() + static_cast<std::ptrdiff_t>(good.first<Compute>(body)));
  EXPECT_THAT(good.problem(), HasSubstr("is read before it is written"));
}

TEST(Verify, AMissingFreeIsFound) {
  Good good;
  auto& body = good.program.stages[1].backward;
  body.erase(body.begin() + static_cast<std::ptrdiff_t>(good.first<Free>(body)));
  EXPECT_THAT(good.problem(), HasSubstr("is never freed"));
}

TEST(Verify, ASecondFreeIsFound) {
  Good good;
  auto& body = good.program.stages[1].backward;
  const std::size_t at = good.first<Free>(body);
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(at), body[at]);
  EXPECT_THAT(good.problem(), HasSubstr("is freed without being held"));
}

TEST(Verify, UseAfterFreeIsFound) {
  Good good;
  auto& body = good.program.stages[0].forward;
  const std::size_t at = good.first<Free>(body);
  const InstructionId free = body[at];
  const BufferId buffer = std::get<Free>(good.program.instructions[free].what).buffer;
  // To the front of the instruction that used it last.
  body.erase(body.begin() + static_cast<std::ptrdiff_t>(at));
  std::size_t last = at;
  for (std::size_t i = 0; i < at; ++i)
    for (BufferId read : reads_of(good.program, good.program.instructions[body[i]]))
      if (read == buffer) last = i;
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(last), free);
  EXPECT_THAT(good.problem(), HasSubstr("after it was freed"));
}

TEST(Verify, AMissingSendDeadlocksAndIsNamed) {
  Good good;
  auto& body = good.program.stages[0].forward;
  body.erase(body.begin() + static_cast<std::ptrdiff_t>(good.first<Send>(body)));
  EXPECT_EQ(good.problem(), "deadlock: pipeline ranks 0, 1 wait for one another");
}

TEST(Verify, ATransferMustArriveWhereItIsNeeded) {
  Good good;
  good.program.instructions[good.program.stages[0].forward[good.first<Send>(good.program.stages[0].forward)]].mesh =
      MeshId(1);
  EXPECT_THAT(good.problem(), HasSubstr("is sent by another mesh than holds it"));
}

TEST(Verify, ALayoutOfAnotherShapeIsFound) {
  Good good;
  for (Buffer& buffer : good.program.buffers)
    if (!buffer.layout.dims.empty()) {
      buffer.layout.dims[0] = {Factor{1234, {}}};
      break;
    }
  EXPECT_THAT(good.problem(), HasSubstr("its layout is of another shape"));
}

TEST(Verify, AScheduleOfMoreStagesIsFound) {
  Good good;
  good.schedule = make_schedule({"1f1b", 4, 4, 0}).value();
  EXPECT_THAT(good.problem(), HasSubstr("the schedule has 4 stages, the program 2"));
}

}  // namespace
}  // namespace weft
