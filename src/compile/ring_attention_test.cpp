// Ring attention: what is sent, what is held, what waits for what. compiled_program_test.cpp checks that it computes
// the same as one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "price/price.h"
#include "program/memory.h"
#include "program/verify.h"
#include "program_cases.h"

namespace weft {
namespace {

using testing::HasSubstr;

const char* const kRoomy = "llama3-8b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=8,vocab=16";

bool is_shift(const Instruction& instruction) {
  const auto* communicate = std::get_if<Communicate>(&instruction.what);
  return communicate && communicate->collective == Collective::Shift;
}

// Shifts of two buffers each that belong to a layer, in the forward and the backward body.
std::pair<int, int> shifts_of_layer(const ProgramCase& each, const std::string& layer) {
  const auto count = [&](const std::vector<InstructionId>& body) {
    int found = 0;
    for (InstructionId id : body) {
      if (!is_shift(each.program.instructions[id])) continue;
      const auto& shift = std::get<Communicate>(each.program.instructions[id].what);
      EXPECT_EQ(shift.inputs.size(), 2u) << "keys and values travel together";
      found += each.training.graph.name(each.program.buffers[shift.inputs[0]].tensor).starts_with(layer);
    }
    return found;
  };
  return {count(each.program.stages[0].forward), count(each.program.stages[0].backward)};
}

// Forward: keys and values make n − 1 steps. Backward: they do so again, and their gradients make n, the last one home.
// Recomputed attention goes around once more.
TEST(RingAttention, ShiftsPerLayerAndMicroBatch) {
  using Shifts = std::pair<int, int>;
  EXPECT_EQ(shifts_of_layer(program_case(kRoomy, "cp=2,cp_mode=ring", 8), "layers.1."), Shifts(1, 1 + 2));
  EXPECT_EQ(shifts_of_layer(program_case(kRoomy, "cp=4,cp_mode=ring", 8), "layers.1."), Shifts(3, 3 + 4));
  EXPECT_EQ(shifts_of_layer(program_case(kRoomy, "cp=4,cp_mode=ring,recompute=selective", 8), "layers.1."),
            Shifts(3, 3 + 3 + 4));
  EXPECT_EQ(shifts_of_layer(program_case(kRoomy, "cp=4,cp_mode=ring,recompute=full", 8), "layers.1."),
            Shifts(3, 3 + 3 + 4));
}

// What attention reads and makes for keys is in parts everywhere; nothing is gathered, nothing is reduce-scattered.
TEST(RingAttention, NobodyHoldsAllKeys) {
  const ProgramCase each = program_case(kRoomy, "cp=4,cp_mode=ring", 8);
  const Graph& graph = each.training.graph;
  std::vector<TensorId> keys;
  for (OpId op : graph.ops().ids()) {
    if (graph.kind(op) != OpKind::Attention) continue;
    const Signature& signature = graph.signature(op);
    const int t = signature.axis_named("t");
    for (std::size_t i = 0; i < signature.inputs.size(); ++i)
      if (signature.inputs[i].axes().contains(t)) keys.push_back(graph.inputs(op)[i]);
    for (std::size_t i = 0; i < signature.outputs.size(); ++i)
      if (signature.outputs[i].axes().contains(t)) keys.push_back(graph.outputs(op)[i]);
  }
  EXPECT_EQ(keys.size(), 2u * 6u);  // two layers: k, v of both directions, dk, dv
  int buffers = 0;
  for (const Buffer& buffer : each.program.buffers) {
    if (std::find(keys.begin(), keys.end(), buffer.tensor) == keys.end()) continue;
    ++buffers;
    EXPECT_FALSE(is_partial(buffer.layout)) << graph.name(buffer.tensor);
    EXPECT_EQ(local_shape(buffer.layout, each.program.meshes[buffer.layout.mesh], 0)[1], 2)
        << graph.name(buffer.tensor);
  }
  EXPECT_GT(buffers, 2 * 6);

  // Long sequences of narrow layers, where keys dominate memory. Gathered, they are all held at once.
  const auto peak = [&](const char* strategy) {
    const ProgramCase ringed = program_case(kRoomy, strategy, 64);
    return peak_memory(ringed.program, ringed.training, ringed.schedule).front().total().value;
  };
  EXPECT_LT(peak("cp=8,cp_mode=ring"), peak("cp=8,cp_mode=gather"));
}

// The shift to step j + 1 is issued before the computation of step j, which does not wait for it.
TEST(RingAttention, TheNextKeysTravelDuringAStep) {
  const ProgramCase each = program_case(kRoomy, "cp=4,cp_mode=ring", 8);
  std::vector<InstructionId> shifts;
  int steps = 0;
  for (InstructionId id : each.program.stages[0].forward) {
    const Instruction& instruction = each.program.instructions[id];
    if (is_shift(instruction)) {
      EXPECT_EQ(instruction.stream, Stream::Tensor);
      shifts.push_back(id);
    }
    const auto* compute = std::get_if<Compute>(&instruction.what);
    if (!compute || each.training.graph.kind(compute->op) != OpKind::Attention) continue;
    const int step = steps++ % 4;
    // Keys of steps 1, 2, 3 came with the shift before the one that was issued last; step 3 has none on the way.
    if (step == 0) {
      EXPECT_TRUE(instruction.after.empty() || !is_shift(each.program.instructions[instruction.after.front()]));
    } else {
      EXPECT_EQ(instruction.after, InstructionList{shifts[shifts.size() - (step < 3 ? 2 : 1)]});
    }
  }
  EXPECT_EQ(steps, 2 * 4);
}

// Heads over tp, keys over cp, stages: all shifts stay along cp, and no collective gathers along it.
TEST(RingAttention, KeysAreNotGatheredBesideOtherAxes) {
  const ProgramCase each = program_case(kRoomy, "tp=2,cp=2,pp=2,cp_mode=ring,ga=4", 8);
  for (const StageProgram& stage : each.program.stages)
    for (const auto* body : {&stage.forward, &stage.backward})
      for (InstructionId id : *body) {
        const Instruction& instruction = each.program.instructions[id];
        const auto* communicate = std::get_if<Communicate>(&instruction.what);
        if (!communicate || instruction.stream != Stream::Tensor) continue;
        const std::string axis = each.program.meshes[instruction.mesh].names_of(communicate->axes);
        EXPECT_EQ(communicate->collective == Collective::Shift, axis == "cp")
            << name_of(communicate->collective) << " over " << axis;
      }
}

// Causal: the device at coordinate c attends to its own keys and those of the c before it; the other steps have nothing
// to do. Shifts overlap computation even where a stack does not overlap tensor-parallel collectives.
TEST(RingAttention, IsPricedByWhatTheMaskLetsThrough) {
  const ProgramCase each = program_case(kRoomy, "cp=4,cp_mode=ring", 8, "dgx-h100:2", {.tensor_overlap = false});
  const SoftwareStack stack = find_stack("megatron-lm").value();
  const AnalyticCost cost(stack);
  const Priced priced = price(each.program, each.schedule, each.training, parse_cluster("dgx-h100:1").value(), cost,
                              stack, {.fold = Fold::None})
                            .value();
  ASSERT_EQ(priced.agents.size(), 4u);
  for (AgentId agent : priced.agents.ids()) {
    int attention = 0, combined = 0, shifted = 0;
    for (const Task& task : priced.workload.agents[agent].tasks) {
      const Instruction& instruction = each.program.instructions[InstructionId(task.label)];
      if (const auto* compute = std::get_if<Compute>(&instruction.what))
        attention += each.training.graph.kind(compute->op) == OpKind::Attention && task.work.valid();
      combined += std::holds_alternative<Combine>(instruction.what) && task.work.valid();
      if (!is_shift(instruction)) continue;
      ++shifted;
      EXPECT_TRUE(task.meeting.valid());
      EXPECT_EQ(task.stream, static_cast<std::uint8_t>(Stream::Tensor));
    }
    const int layers = 2;
    EXPECT_EQ(attention, layers * 2 * (static_cast<int>(priced.agents[agent].devices.front().index()) + 1));
    EXPECT_EQ(combined, layers * (3 + 3 * 3));  // y with lse; dk, dv, dq
    EXPECT_EQ(shifted, layers * (3 + 3 + 4));
  }
}

class BrokenRing : public testing::Test {
 protected:
  template <class What, class F>
  std::string problem(F&& change) {
    ProgramCase broken = each;
    for (Instruction& instruction : broken.program.instructions) {
      auto* what = std::get_if<What>(&instruction.what);
      if (what && change(*what, broken.program)) {
        const Status status = verify(broken.program, broken.training.graph, broken.schedule);
        return status.ok() ? "" : status.error().message;
      }
    }
    return "nothing to break";
  }
  const ProgramCase each = program_case(kRoomy, "cp=4,cp_mode=ring", 8);
};

TEST_F(BrokenRing, IsSoundAsCompiled) {
  EXPECT_EQ(problem<Combine>([](Combine&, Program&) { return true; }), "");
}
TEST_F(BrokenRing, AShiftHandsOnByOne) {
  const auto shift_by_two = [](Communicate& what, Program& program) {
    if (what.collective != Collective::Shift) return false;
    Layout& layout = program.buffers[what.outputs[0]].layout;
    layout = rotated(layout, std::countr_zero(what.axes), 1, program.meshes[layout.mesh]);
    return true;
  };
  EXPECT_THAT(problem<Communicate>(shift_by_two), HasSubstr("it hands each part along cp to the next device"));
}
TEST_F(BrokenRing, OtherCollectivesDoNotTouchWhatIsOnItsWay) {
  const auto gather = [](Communicate& what, Program&) {
    if (what.collective != Collective::Shift) return false;
    what.collective = Collective::AllToAll;
    return true;
  };
  EXPECT_THAT(problem<Communicate>(gather), HasSubstr("on its way around a ring is only shifted"));
}
TEST_F(BrokenRing, WhatIsCombinedIsOfOneLayout) {
  const auto turn = [](Combine& what, Program& program) {
    Layout& layout = program.buffers[what.inputs[0]].layout;
    const int axis = program.meshes[layout.mesh].axis_named("cp");
    layout = rotated(layout, axis, 1, program.meshes[layout.mesh]);
    return true;
  };
  EXPECT_THAT(problem<Combine>(turn), HasSubstr("which is another tensor or layout"));
  const auto short_of_weights = [](Combine& what, Program&) {
    what.inputs.pop_back();
    return true;
  };
  EXPECT_THAT(problem<Combine>(short_of_weights), HasSubstr("takes 3 buffers and gives 2, not 4 and 2"));
}

// A part in transit has no layout that resharding could start from.
TEST(RingLayouts, AreHeldOnePartFurtherAndNotResharded) {
  const Mesh mesh = Mesh::make({{"cp", 3}}, {DeviceId(0), DeviceId(1), DeviceId(2)}).value();
  std::string_view text = "[12:cp>1]";
  const Layout layout = parse_layout(text, MeshId(0), mesh).value();
  EXPECT_EQ(print(layout, mesh), "[12:cp>1]");
  EXPECT_EQ(held_ranges(layout.dims[0], mesh, 0), (std::vector<Range>{{8, 12}}));  // (0 − 1) mod 3 = 2
  EXPECT_EQ(held_ranges(layout.dims[0], mesh, 1), (std::vector<Range>{{0, 4}}));
  std::string_view home = "[12:cp]";
  const Layout at_home = parse_layout(home, MeshId(0), mesh).value();
  EXPECT_EQ(rotated(layout, 0, 2, mesh), at_home);
  EXPECT_FALSE(reshard(layout, at_home, mesh).ok());
  std::string_view far = "[12:cp>3]";
  EXPECT_EQ(parse_layout(far, MeshId(0), mesh).error().message, "handed on 3 times around a ring of 3");
}

}  // namespace
}  // namespace weft
