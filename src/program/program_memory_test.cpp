// Memory that follows from programs, against the formulas people use.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "models/models.h"
#include "program/memory.h"
#include "program/verify.h"
#include "program_cases.h"

namespace weft {
namespace {

struct Compiled {
  TrainingGraph training;
  Program program;
  Schedule schedule;
};

// Data parallel over `dp` devices; layers in equal runs over `pp` stages.
Compiled compiled(const std::string& model, int dp, int zero, int pp = 1, int micro_batches = 1,
                  DType gradients = DType::BF16, GradientSync sync = {}) {
  Result<Model> loaded = load_model(model, {.batch = dp, .seq = 8});
  const int layers = static_cast<int>(loaded->info.layers);
  Compiled result{make_training_graph(std::move(loaded->graph), {.gradient_dtype = gradients}).value(),
                  {},
                  make_schedule({"1f1b", pp, micro_batches, 0}).value()};
  const Graph& graph = result.training.graph;
  Placing placing;
  for (int stage = 0; stage < pp; ++stage) {
    std::vector<DeviceId> devices;
    for (int i = 0; i < dp; ++i) devices.emplace_back(static_cast<std::size_t>(stage * dp + i));
    placing.meshes.push_back(Mesh::make({{"dp", dp}}, devices).value());
    placing.stage_of.push_back(stage);
  }
  placing.mesh_of.resize(graph.ops().size(), MeshId(0));
  std::size_t stage = 0;
  for (OpId op : graph.ops().ids()) {
    const std::string name = graph.name(op);
    if (name.starts_with("layers.") && graph.ops()[op].phase == Phase::Forward)
      stage = static_cast<std::size_t>(std::stoi(name.substr(7)) * pp / layers);
    placing.mesh_of[op] = MeshId(stage);
  }
  ShardingChoices choices;
  choices.ops.resize(1);
  choices.inputs.resize(1);
  choices.reduce_onto.resize(1);
  for (TensorId id : graph.tensors().ids())
    if (graph.tensors()[id].kind == TensorKind::Input && graph.tensors()[id].type.shape.size() == 2 &&
        graph.tensors()[id].type.shape[0] == dp)
      choices.inputs[0][id] = {0};
  const ShardingPlan plan = plan_sharding(result.training, placing, choices).value();
  result.program =
      compile(result.training, placing, plan, {.memory = {zero, 0b1}, .gradients = sync}, RecomputeRegions::none(graph))
          .value();
  // Frees as they must wait: program_waits_test.cpp.
  EXPECT_TRUE(verify(result.program, graph, result.schedule).ok());
  return result;
}

// Rajbhandari et al. 2020, figure 1: bf16 weights and gradients, fp32 master weights and moments (K = 12), Ψ
// parameters, N devices.
TEST(ProgramMemory, ZeroKeepsWhatThePaperSays) {
  const std::string model = "llama3-8b:layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=256";
  const int n = 4;
  const auto states = [&](int zero, DType gradients) {
    const Compiled c = compiled(model, n, zero, 1, 1, gradients);
    const HeldBytes held = peak_memory(c.program, c.training, c.schedule)[0];
    return static_cast<double>((held.parameters + held.gradients + held.optimizer).value) /
           static_cast<double>(c.training.graph.parameter_count());
  };
  EXPECT_DOUBLE_EQ(states(0, DType::BF16), 16);            // 2 + 2 + 12
  EXPECT_DOUBLE_EQ(states(1, DType::BF16), 4 + 12.0 / n);  // every dimension divides: exact
  EXPECT_DOUBLE_EQ(states(2, DType::BF16), 2 + 14.0 / n);
  EXPECT_DOUBLE_EQ(states(3, DType::BF16), 16.0 / n);
  EXPECT_DOUBLE_EQ(states(0, DType::F32), 18);  // fp32 gradients
  EXPECT_DOUBLE_EQ(states(1, DType::F32), 6 + 12.0 / n);
}

// Narayanan et al. 2021: under 1F1B stage s of p holds the activations of p − s micro-batches.
TEST(ProgramMemory, OneForwardOneBackwardHoldsAsManyMicroBatchesAsStagesFollow) {
  const std::string model = "gpt2-124m:layers=8,hidden=32,heads=4,vocab=64,dropout=0";
  const Compiled one = compiled(model, 1, 0, 4, 1), many = compiled(model, 1, 0, 4, 8);
  const std::vector<HeldBytes> single = peak_memory(one.program, one.training, one.schedule);
  const std::vector<HeldBytes> full = peak_memory(many.program, many.training, many.schedule);
  for (std::size_t stage = 1; stage < 3; ++stage)  // the middle ones: alike, without embedding or head
    EXPECT_NEAR(
        static_cast<double>(full[stage].activations.value) / static_cast<double>(single[stage].activations.value),
        4.0 - static_cast<double>(stage), 1e-9);
}

// What is reduced once per step is held once, however many micro-batches came before: one stage holds the same at its
// peak. The first of them holds less: its gradients are made where they are summed.
TEST(ProgramMemory, MoreMicroBatchesOnOneStageHoldNoMore) {
  const std::string model = "gpt2-124m:layers=2,hidden=32,heads=4,vocab=64,dropout=0";
  const auto peak = [&](int micro_batches) {
    const Compiled c = compiled(model, 2, 1, 1, micro_batches);
    return peak_memory(c.program, c.training, c.schedule)[0];
  };
  EXPECT_EQ(peak(2), peak(6));
  EXPECT_LT(peak(1).total(), peak(2).total());
}

// Korthikanti et al. 2022: the activations of a layer in bytes, fp16, unfused attention with dropout: 34·s·b·h +
// 5·a·s²·b.
TEST(ProgramMemory, ActivationsOfALayerAreKorthikantis) {
  const double s = 128, b = 2, h = 256, a = 8;
  const auto saved = [&](int layers) {
    const std::string model =
        fmt::format("gpt2-124m:layers={},hidden=256,heads=8,vocab=512,dropout=0.1,fused_attention=0", layers);
    Graph graph = build_model(model, {.batch = 2, .seq = 128, .dtype = DType::F16}).value();
    const TrainingGraph training = make_training_graph(std::move(graph)).value();
    return static_cast<double>(saved_bytes(training, RecomputeRegions::none(training.graph)).value);
  };
  const double layer = saved(3) - saved(2), formula = 34 * s * b * h + 5 * a * s * s * b;
  EXPECT_NEAR(layer / formula, 1.0, 0.02);
  fmt::print("activations of a layer: {} bytes, the formula {}\n", layer, formula);
}

// Collectives on gradients in the backward body, and those left for the step.
std::pair<int, int> gradient_collectives(const Compiled& c) {
  const auto count = [&](const std::vector<InstructionId>& body) {
    int collectives = 0;
    for (InstructionId id : body)
      if (const auto* each = std::get_if<Communicate>(&c.program.instructions[id].what))
        collectives +=
            each->collective == Collective::AllReduce && c.program.buffers[each->inputs[0]].kind == BufferKind::State;
    return collectives;
  };
  return {count(c.program.stages[0].backward), count(c.program.step)};
}

TEST(GradientSync, BucketsJoinGradientsInTheOrderTheyBecomeReady) {
  // 2 layers of 12 parameters (6 linears and norms with their biases), 2 embeddings of which one is tied, the last
  // norm: 28 in all.
  const std::string model = "gpt2-124m:layers=2,hidden=32,heads=4,vocab=64,dropout=0";
  const auto with = [&](GradientSync sync) {
    return gradient_collectives(compiled(model, 2, 0, 1, 1, DType::BF16, sync));
  };
  EXPECT_EQ(with({.overlap = true, .bucket = Bytes{1}}), std::pair(28, 0));
  EXPECT_EQ(with({.overlap = true, .bucket = Bytes{1 << 30}}), std::pair(1, 0));
  // Together, so that they wait for the last gradient of all.
  EXPECT_EQ(with({.overlap = false, .bucket = Bytes{1}}), std::pair(0, 1));
  EXPECT_EQ(with({.overlap = false, .bucket = Bytes{1 << 30}}), std::pair(0, 1));
  const auto [some, left] = with({.overlap = true, .bucket = Bytes{8192}});
  EXPECT_GT(some, 1);
  EXPECT_LT(some, 28);
}

// What a staged collective holds besides, worked out from the elements of its members.
std::int64_t staged_bytes(const Compiled& c, const std::vector<InstructionId>& body, std::int64_t* count = nullptr) {
  std::int64_t most = 0;
  for (InstructionId id : body)
    if (const auto* each = std::get_if<Communicate>(&c.program.instructions[id].what); each && each->staged) {
      std::int64_t bytes = 0;
      for (BufferId input : each->inputs) {
        const TensorType& type = c.training.graph.tensors()[c.program.buffers[input].tensor].type;
        std::int64_t elements = 1;
        for (std::int64_t size : type.shape) elements *= size;  // gradients are whole on every device
        bytes += elements * bits_of(each->wire.value_or(type.dtype)) / 8;
      }
      most = std::max(most, bytes);
      if (count) ++*count;
    }
  return most;
}

// Gradients that do not lie in their bucket are copied there: all at once after backward, when activations are gone,
// that is the gradients once more; bucket by bucket, one bucket more at the most.
TEST(GradientSync, BucketsThatGradientsDoNotLieInAreHeldWhileTheyTravel) {
  const std::string model = "gpt2-124m:layers=2,hidden=128,heads=4,vocab=1024,dropout=0";
  const auto peak = [&](const Compiled& c) { return peak_memory(c.program, c.training, c.schedule)[0]; };
  const auto with = [&](bool overlap, bool flat) {
    return compiled(model, 2, 0, 1, 1, DType::BF16, {.overlap = overlap, .bucket = Bytes{1 << 16}, .flat = flat});
  };
  const Compiled late = with(false, false), early = with(true, false);
  const std::int64_t gradients = 2 * late.training.graph.parameter_count();
  EXPECT_EQ(staged_bytes(late, late.program.step), gradients);
  EXPECT_EQ(peak(late).activations.value, 0);
  EXPECT_GE(peak(late).buffers.value, gradients);
  EXPECT_LT(peak(late).buffers.value, gradients + 100);  // and scalars
  EXPECT_LT(peak(with(false, true)).total().value, peak(late).total().value);

  std::int64_t buckets = 0;
  const std::int64_t largest = staged_bytes(early, early.program.stages[0].backward, &buckets);
  EXPECT_GT(buckets, 5);
  const std::int64_t excess = peak(early).total().value - peak(with(true, true)).total().value;
  EXPECT_GT(excess, 0);
  EXPECT_LE(excess, largest);
  std::int64_t flat = 0;
  for (const bool overlap : {false, true}) {
    const Compiled c = with(overlap, true);
    staged_bytes(c, c.program.step, &flat);
    staged_bytes(c, c.program.stages[0].backward, &flat);
  }
  EXPECT_EQ(flat, 0);
}

// An activation cut along its last dimension is gathered part by part, and its rows put together from that; one cut
// along its sequences lies together.
TEST(ProgramMemory, PartsThatLieApartAreGatheredThroughACopy) {
  Result<Model> loaded =
      load_model("llama3-8b:layers=1,hidden=64,heads=4,kv_heads=4,ffn=128,vocab=256", {.batch = 2, .seq = 8});
  const TrainingGraph training = make_training_graph(std::move(loaded->graph)).value();
  const Graph& graph = training.graph;
  Placing placing;
  placing.meshes.push_back(Mesh::make({{"tp", 2}}, {DeviceId(0), DeviceId(1)}).value());
  placing.stage_of.push_back(0);
  placing.mesh_of.resize(graph.ops().size(), MeshId(0));
  const auto staged = [&](const char* split, const char* axis) {
    ShardingChoices choices;
    choices.ops.resize(1);
    choices.inputs.resize(1);
    choices.reduce_onto.resize(1);
    for (OpId op : graph.ops().ids())
      if (graph.name(op) == split) choices.ops[0][op] = {axis};
    const ShardingPlan plan = plan_sharding(training, placing, choices).value();
    const Program program = compile(training, placing, plan, {}, RecomputeRegions::none(graph)).value();
    std::pair<int, int> found;  // gathers of activations, and those that are staged
    for (InstructionId id : program.stages[0].forward)
      if (const auto* each = std::get_if<Communicate>(&program.instructions[id].what);
          each && each->collective == Collective::AllGather) {
        ++found.first;
        found.second += each->staged;
        const auto bytes = [&](BufferId) { return std::int64_t{1000}; };
        EXPECT_EQ(staging_bytes(program, graph, *each, bytes), each->staged ? 1000 : 0);
      }
    return found;
  };
  const auto [columns, apart] = staged("layers.0.attn.out", "n");
  EXPECT_GT(columns, 0);
  EXPECT_EQ(apart, columns);
  const auto [sequences, together] = staged("layers.0.attn_norm", "s");
  EXPECT_GT(sequences, 0);
  EXPECT_EQ(together, 0);
}

}  // namespace
}  // namespace weft
