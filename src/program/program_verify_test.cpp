// The verifier detects every kind of damage to a valid program and names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/verify.h"
#include "program_cases.h"

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
  // Takes an instruction out of its body, and out of what others wait for.
  void take_out(std::vector<InstructionId>& body, std::size_t at) {
    for (Instruction& each : program.instructions)
      erase_if(each.after, [&](InstructionId id) { return id == body[at]; });
    body.erase(body.begin() + static_cast<std::ptrdiff_t>(at));
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
  good.take_out(body, good.first<Compute>(body));
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
  const InstructionId copy = good.program.instructions.push_back(good.program.instructions[body[at]]);
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(at), copy);
  EXPECT_THAT(good.problem(), HasSubstr("is freed without being held"));
}

TEST(Verify, UseAfterFreeIsFound) {
  Good good;
  auto& body = good.program.stages[0].forward;
  const std::size_t at = good.first<Free>(body);
  const InstructionId free = body[at];
  const BufferId buffer = std::get<Free>(good.program.instructions[free].what).buffer;
  // To the front of the instruction that uses it last.
  body.erase(body.begin() + static_cast<std::ptrdiff_t>(at));
  std::size_t last = at;
  for (std::size_t i = 0; i < at; ++i)
    for (BufferId read : reads_of(good.program, good.program.instructions[body[i]]))
      if (read == buffer) last = i;
  good.program.instructions[free].after = {body.begin(), body.begin() + static_cast<std::ptrdiff_t>(last)};
  erase_if(good.program.instructions[free].after,
           [&](InstructionId id) { return std::holds_alternative<Free>(good.program.instructions[id].what); });
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(last), free);
  EXPECT_THAT(good.problem(), HasSubstr("after it was freed"));
}

TEST(Verify, AnInstructionInTwoPlacesIsFound) {
  Good good;
  good.program.step.push_back(good.program.stages[0].forward[0]);
  EXPECT_THAT(good.problem(), HasSubstr("stands in the bodies twice"));
}

TEST(Verify, AMissingSendIsFound) {
  Good good;
  auto& body = good.program.stages[0].forward;
  body.erase(body.begin() + static_cast<std::ptrdiff_t>(good.first<Send>(body)));
  EXPECT_EQ(good.problem(), "transfer t0 is sent 0 times and received 1 times");
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

// --- streams and waits

// Without one of its waits, an instruction of each kind is found out: nothing waits in vain.
TEST(Verify, AMissingWaitIsFound) {
  const Good good;
  int broken = 0, found = 0;
  std::string first;
  for (InstructionId id : good.program.instructions.ids()) {
    if (std::holds_alternative<Free>(good.program.instructions[id].what)) continue;
    for (std::size_t i = 0; i < good.program.instructions[id].after.size(); ++i) {
      Good bad = good;
      auto& after = bad.program.instructions[id].after;
      after.erase(after.begin() + i, after.begin() + i + 1);
      const std::string problem = bad.problem();
      ++broken;
      if (problem.find("without waiting for") == std::string::npos) continue;
      if (found++ == 0) first = problem;
    }
  }
  EXPECT_GT(broken, 20);
  // Many waits are covered by others: once one operator has waited for a bucket, those after it on the stream have too.
  EXPECT_GT(found, 10);
  EXPECT_THAT(first, HasSubstr("stream"));
}

TEST(Verify, AReadBeforeACollectiveIsDoneIsFoundAndNamed) {
  Good good;
  const auto& body = good.program.stages[1].forward;
  // The first computation that reads what was received.
  for (InstructionId id : body) {
    Instruction& instruction = good.program.instructions[id];
    if (!std::holds_alternative<Compute>(instruction.what) || instruction.after.empty()) continue;
    const InstructionId receive = instruction.after.front();
    instruction.after.clear();
    EXPECT_THAT(good.problem(), testing::MatchesRegex(
                                    fmt::format("#{} .* reads buffer b.* without waiting for #{} .receive of .* on the "
                                                "receive stream",
                                                id.index(), receive.index())));
    return;
  }
  FAIL() << "nothing waits";
}

// A gradient is reduced on its own stream while a computation already adds to it again.
TEST(Verify, AWriteOverWhatAnotherStreamReadsIsFound) {
  Good good;
  auto& body = good.program.stages[0].backward;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const Instruction& reduce = good.program.instructions[body[i]];
    const auto* communicate = std::get_if<Communicate>(&reduce.what);
    if (!communicate || good.program.buffers[communicate->inputs[0]].kind != BufferKind::State) continue;
    const BufferId sum = communicate->inputs[0];
    for (std::size_t j = 0; j < i; ++j) {
      const Instruction& add = good.program.instructions[body[j]];
      const auto* compute = std::get_if<Compute>(&add.what);
      if (!compute || compute->outputs != BufferList{sum}) continue;
      Instruction again = add;
      auto& operation = std::get<Compute>(again.what);
      operation.inputs[1] = sum;
      body.insert(body.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                  good.program.instructions.push_back(std::move(again)));
      EXPECT_THAT(good.problem(), HasSubstr("may still read it: it must wait"));
      return;
    }
  }
  FAIL() << "no gradient is reduced";
}

TEST(Verify, AFreeThatDoesNotWaitForAUseIsFound) {
  Good good;
  int found = 0;
  for (InstructionId id : good.program.instructions.ids()) {
    Instruction& instruction = good.program.instructions[id];
    if (!std::holds_alternative<Free>(instruction.what)) continue;
    const auto kept = instruction.after;
    instruction.after.clear();
    const std::string problem = good.problem();
    EXPECT_THAT(problem, HasSubstr("may still use it: the free must wait for it"));
    EXPECT_THAT(problem, HasSubstr(fmt::format("#{} frees", id.index())));
    instruction.after = kept;
    if (++found == 10) break;
  }
}

TEST(Verify, WaitingForWhatComesLaterIsFound) {
  Good good;
  const auto& stage = good.program.stages[0];
  good.program.instructions[stage.forward[0]].after.push_back(stage.backward[0]);
  EXPECT_THAT(good.problem(), HasSubstr("which comes later"));
  Good other;
  other.program.instructions[other.program.stages[0].forward[0]].after.push_back(InstructionId(123456));
  EXPECT_THAT(other.problem(), HasSubstr("waits for #123456, which is never issued"));
  Good third;
  const auto& body = third.program.stages[0].forward;
  third.program.instructions[body.back()].after.push_back(body[third.first<Free>(body)]);
  EXPECT_THAT(third.problem(), HasSubstr("nothing may wait for a free"));
}

// --- meetings

// Two tensors cross from stage 0 to stage 1 in one order and are received in the other.
TEST(Verify, TransfersInOppositeOrdersBlockAndTheCircleIsNamed) {
  Good good;
  Program& program = good.program;
  auto& forward = program.stages[0].forward;
  const std::size_t send = good.first<Send>(forward), receive = good.first<Receive>(forward);
  // A second copy of the tensor, sent after the first, received and freed before it.
  const TransferId first = std::get<Send>(program.instructions[forward[send]].what).transfer;
  const BufferId copy = program.buffers.push_back(program.buffers[program.transfers[first].to]);
  program.buffers[copy].storage = program.buffers[copy].memory = copy;
  program.buffers[copy].kind = BufferKind::Temporary;
  const TransferId second = program.transfers.push_back({program.transfers[first].from, copy});
  Instruction sends = program.instructions[forward[send]], receives = program.instructions[forward[receive]];
  sends.what = Send{second};
  receives.what = Receive{second};
  const InstructionId sent = program.instructions.push_back(sends), received = program.instructions.push_back(receives);
  const InstructionId freed =
      program.instructions.push_back({receives.mesh, Guard::Always, false, Free{copy}, Stream::Compute, {received}});
  forward.insert(forward.begin() + static_cast<std::ptrdiff_t>(receive) + 1, sent);
  forward.insert(forward.begin() + static_cast<std::ptrdiff_t>(receive), received);
  program.stages[1].forward.insert(program.stages[1].forward.begin(), freed);
  const InstructionId sent_first = forward[send], received_first = forward[receive + 1];
  for (InstructionId id : forward)  // and what is sent twice is freed after both, at the end
    if (const auto* free = std::get_if<Free>(&program.instructions[id].what))
      if (program.buffers[program.transfers[second].from].memory == free->buffer) {
        program.instructions[id].after.push_back(sent);
        std::erase(forward, id);
        forward.push_back(id);
        break;
      }
  const std::string circle = fmt::format(
      "deadlock: device 2 at #{} .receive of .*, micro-batch 0, on its receive stream waits for device 0 to play #{} "
      ".send of .*; device 0 at #{} .send of .*, micro-batch 0, on its send stream waits for device 2 to play #{} "
      ".receive of .*",
      received.index(), sent.index(), sent_first.index(), received_first.index());
  EXPECT_THAT(good.problem(), testing::MatchesRegex(circle));
  // In the same order they pass.
  std::iter_swap(std::find(forward.begin(), forward.end(), received),
                 std::find(forward.begin(), forward.end(), received_first));
  EXPECT_EQ(good.problem(), "");
}

// Both sides of a transfer agree on its turn because both halves stand in one body.
TEST(Verify, AReceiveStandsInTheBodyThatSends) {
  Good good;
  auto &forward = good.program.stages[0].forward, &there = good.program.stages[1].forward;
  const auto receive = forward.begin() + static_cast<std::ptrdiff_t>(good.first<Receive>(forward));
  there.insert(there.begin(), *receive);
  forward.erase(receive);
  EXPECT_THAT(good.problem(), HasSubstr("is received in another body than it is sent in"));
}

TEST(Verify, ASendThatIsNotPlayedInEveryMicroBatchIsMissed) {
  Good good;
  const auto& body = good.program.stages[0].forward;
  good.program.instructions[body[good.first<Send>(body)]].guard = Guard::FirstMicroBatch;
  EXPECT_THAT(good.problem(), HasSubstr("which it never does"));
}

// All members of a collective execute the same body of the same rank, so they meet in one order; a mesh across ranks is
// rejected.
TEST(Verify, ACollectiveOfDevicesOfTwoPipelineRanksIsFound) {
  Good good;
  good.program.instructions[good.program.stages[1].forward.back()].mesh = good.program.world;
  EXPECT_THAT(good.problem(), testing::AnyOf(HasSubstr("plays for pipeline ranks"), HasSubstr("another mesh")));
}

// --- layouts

// A good program with collectives of every kind, and a way to break one.
struct Sharded {
  ProgramCase good = program_case(kSmallGpt, "tp=2,dp=2,zero=1");

  Communicate& find(Collective collective) {
    for (Instruction& instruction : good.program.instructions)
      if (auto* communicate = std::get_if<Communicate>(&instruction.what);
          communicate && communicate->collective == collective)
        return *communicate;
    throw std::logic_error("no such collective");
  }
  Layout& out(Communicate& communicate) { return good.program.buffers[communicate.outputs[0]].layout; }
  std::string problem() const {
    const Status status = verify(good.program, good.training.graph, good.schedule);
    return status.ok() ? "" : status.error().message;
  }
};

TEST(VerifyLayouts, AGoodProgramPasses) { EXPECT_EQ(Sharded().problem(), ""); }

TEST(VerifyLayouts, ACollectiveOfAnotherMeaningIsFound) {
  const std::pair<Collective, Collective> swaps[] = {{Collective::AllGather, Collective::Slice},
                                                     {Collective::AllGather, Collective::AllToAll},
                                                     {Collective::ReduceScatter, Collective::AllGather},
                                                     {Collective::ReduceScatter, Collective::AllReduce},
                                                     {Collective::AllGather, Collective::HaloExchange}};
  for (const auto& [from, to] : swaps) {
    Sharded broken;
    broken.find(from).collective = to;
    EXPECT_THAT(broken.problem(), testing::MatchesRegex(".* becomes .*, but .*"))
        << name_of(from) << " " << name_of(to);
  }
}

TEST(VerifyLayouts, ACollectiveOverAnotherAxisIsFound) {
  Sharded broken;
  Communicate& gather = broken.find(Collective::AllGather);
  gather.axes ^= 0b11;
  EXPECT_THAT(broken.problem(), HasSubstr("it takes a cut along"));
}

TEST(VerifyLayouts, AnotherReducerIsFound) {
  Sharded broken;
  broken.find(Collective::ReduceScatter).reducer = Reducer::Max;
  EXPECT_THAT(broken.problem(), HasSubstr("be whole, the max of what is partial"));
}

// [8: a, b] and [8: b, a] are cut by the same axes, but taking a away from the first leaves [2 4:b], not [8:b].
TEST(VerifyLayouts, WhatAGatherLeavesDependsOnTheOrderOfCuts) {
  GraphBuilder b("line");
  b.result(b.op1(OpKind::Unary, "relu", {b.input("x", DType::F32, {8})}, {{"fn", "relu"}}));
  const Graph graph = std::move(b).freeze().value();
  const auto problem = [&](const std::string& from, const std::string& to, MeshAxes axes = axis_set(0),
                           Parts parts = Parts::Even) {
    Program program;
    program.world = program.meshes.push_back(
        Mesh::make({{"a", 2}, {"b", 2}}, {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)}).value());
    const Mesh& mesh = program.meshes[MeshId(0)];
    std::string_view before = from, after = to;
    program.buffers.push_back(
        {TensorId(0), parse_layout(before, MeshId(0), mesh).value(), BufferKind::Input, BufferId(0), BufferId(0)});
    program.buffers.push_back(
        {TensorId(0), parse_layout(after, MeshId(0), mesh).value(), BufferKind::Temporary, BufferId(1), BufferId(1)});
    program.instructions.push_back(
        {MeshId(0), Guard::Always, false,
         Communicate{Collective::AllGather, axes, Reducer::Sum, {BufferId(0)}, {BufferId(1)}, {}, false, parts},
         Stream::Tensor});
    for (std::size_t buffer : {0, 1})
      program.instructions.push_back(
          {MeshId(0), Guard::Always, false, Free{BufferId(buffer)}, Stream::Compute, {InstructionId(0)}});
    program.stages.push_back({{InstructionId(0), InstructionId(1), InstructionId(2)}, {}});
    const Status status = verify(program, graph, make_schedule({"gpipe", 1, 1, 0}).value());
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(problem("[8:b,a]", "[8:b]"), "");
  EXPECT_EQ(problem("[8:a,b]", "[2 4:b]"), "");
  EXPECT_EQ(problem("[8:a(5+3)]", "[8]", axis_set(0), Parts::Padded), "");
  EXPECT_EQ(problem("[8:a(5+3)]", "[8]", axis_set(0), Parts::Grouped), "");
  EXPECT_THAT(problem("[8:a(5+3)]", "[8]"),
              HasSubstr("of parts of different sizes along a, which are padded or grouped"));
  EXPECT_THAT(problem("[8:a]", "[8]", axis_set(0), Parts::Padded),
              HasSubstr("is padded, but its parts along a are of one size"));
  // What other axes cut unevenly is the same for all members.
  EXPECT_EQ(problem("[8:b(3+1),a]", "[8:b(3+1)]"), "");
  EXPECT_THAT(problem("[8:b(3+1),a]", "[8:b(3+1)]", axis_set(0), Parts::Grouped),
              HasSubstr("is grouped, but its parts along a are of one size"));
  EXPECT_EQ(problem("[8:b(3+1),a]", "[8]", 0b11, Parts::Grouped), "");
  // Both at once: in any order.
  EXPECT_EQ(problem("[8:a,b]", "[8]", 0b11), "");
  EXPECT_EQ(problem("[8:b,a]", "[8]", 0b11), "");
  EXPECT_THAT(problem("[8:a,b]", "[2 4:b]", 0b11), HasSubstr("it takes a cut along a,b away"));
  EXPECT_THAT(problem("[8:a]", "[8]", 0b11), HasSubstr("it takes a cut along a,b away"));
  EXPECT_THAT(problem("[8:a]", "[8]", 0), HasSubstr("is over no mesh axes"));
  EXPECT_THAT(problem("[8:a]", "[8]", 0b100), HasSubstr("is over no mesh axes"));
  EXPECT_THAT(problem("[8:a,b]", "[8:b]"), HasSubstr("the groups along a do not have together what dimension 0 needs"));
  EXPECT_THAT(problem("[8:b,a]", "[2 4:b]"), HasSubstr("do not have together"));
  EXPECT_THAT(problem("[8:a]", "[8] P(b)"), HasSubstr("it changes nothing along b"));
  // And layouts that are none.
  EXPECT_THAT(problem("[8:a(5+4)]", "[8]"), HasSubstr("the parts along a do not make up dimension 0"));
  EXPECT_THAT(problem("[8:a(5+3),b]", "[8:b]"), HasSubstr("the parts along b do not make up dimension 0"));
  EXPECT_THAT(problem("[8:a] P(a)", "[8]"), HasSubstr("has two uses for mesh axis a"));
  EXPECT_THAT(problem("[9:a(5+4)]", "[8]"), HasSubstr("its layout is of another shape"));
}

TEST(VerifyScalars, WhatComesWithAStepIsNotWrittenAndAResultIsWrittenInIt) {
  const auto of_kind = [](const Program& program, BufferKind kind) {
    BufferId found;
    for (BufferId id : program.buffers.ids())
      if (program.buffers[id].kind == kind) found = id;
    return found;
  };
  Good given;
  given.program.buffers[of_kind(given.program, BufferKind::Result)].kind = BufferKind::Scalar;
  EXPECT_THAT(given.problem(), HasSubstr("is given with the step, and written"));
  Good untold;
  untold.program.buffers[of_kind(untold.program, BufferKind::Scalar)].kind = BufferKind::Result;
  EXPECT_THAT(untold.problem(), HasSubstr("is a result that the step does not write"));
  Good tensor;
  for (Buffer& buffer : tensor.program.buffers)
    if (buffer.kind == BufferKind::Input && !buffer.layout.dims.empty()) buffer.kind = BufferKind::Scalar;
  EXPECT_THAT(tensor.problem(), HasSubstr("is no scalar: one number, the same everywhere"));
  Good sums;
  for (Instruction& instruction : sums.program.instructions)
    if (auto* sum = std::get_if<SumScalars>(&instruction.what)) sum->counts[0] += 1;
  EXPECT_THAT(sums.problem(), HasSubstr("has 2 sums of"));
}

TEST(VerifyLayouts, HostMemoryIsOnlyCopied) {
  Good good;
  for (InstructionId id : good.program.stages[0].forward)
    if (const auto* compute = std::get_if<Compute>(&good.program.instructions[id].what)) {
      good.program.buffers[compute->outputs[0]].on_host = true;
      break;
    }
  EXPECT_THAT(good.problem(), HasSubstr("is on the host, where only copies reach it"));
}

TEST(VerifyLayouts, ATransferOfAContributionIsFound) {
  Good good;
  good.program.buffers[good.program.transfers[TransferId(0)].from].layout.partial[0] = Reducer::Sum;
  EXPECT_THAT(good.problem(), testing::AnyOf(HasSubstr("only whole values cross"), HasSubstr("has two uses")));
}

}  // namespace
}  // namespace weft
