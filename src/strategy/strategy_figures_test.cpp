// Figures that people know strategies by, counted in compiled programs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/from_strategy.h"
#include "models/models.h"
#include "program/memory.h"
#include "reference/one_device.h"
#include "strategy/shorthand.h"
#include "strategy/stack.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

struct Plan {
  TrainingGraph training;
  CompiledStrategy compiled;
  const Graph& graph() const { return training.graph; }
};

Plan compile_plan(TrainingGraph training, const Strategy& strategy, const Cluster& cluster) {
  const Result<ResolvedStrategy> resolved = resolve(strategy, training, cluster);
  EXPECT_TRUE(resolved.ok()) << resolved.error().message;
  Result<CompiledStrategy> compiled = compile_strategy(training, *resolved);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  return {std::move(training), std::move(compiled).value()};
}
// On the first devices of sixteen nodes of four.
Plan compile_plan(const std::string& model, const std::string& shorthand, std::int64_t devices,
                  const ModelOptions& given = {}, const TrainingOptions& training = {}) {
  static const Cluster cluster = parse_cluster("k80x4:16").value();
  const Parallelism plan = complete(parse_shorthand(shorthand).value(), devices).value();
  ModelOptions options = given;
  options.batch = given.batch * plan.dp;
  Graph graph = build_model(model, options).value();
  const Strategy strategy = expand(plan, graph);
  return compile_plan(make_training_graph(std::move(graph), training).value(), strategy, cluster);
}

// A collective as one group of devices executes it.
struct GroupTraffic {
  std::vector<DeviceId> members;
  Collective collective{};
  TensorId tensor;    // the first of a bucket
  BufferKind kind{};  // of the first input
  double sent = 0;    // bytes by one member
};
std::vector<GroupTraffic> traffic(const Plan& plan, const std::vector<InstructionId>& body) {
  const Program& program = plan.compiled.program;
  std::vector<GroupTraffic> all;
  for (InstructionId id : body) {
    const Instruction& instruction = program.instructions[id];
    const auto* communicate = std::get_if<Communicate>(&instruction.what);
    if (!communicate || communicate->collective == Collective::Slice) continue;
    const Mesh& mesh = program.meshes[instruction.mesh];
    const MeshAxes along = communicate->axes;
    double sent = 0;
    for (std::size_t i = 0; i < communicate->outputs.size(); ++i) {
      const Buffer& from = program.buffers[communicate->inputs[i]];
      const ReshardStep step{communicate->collective, along, communicate->reducer,
                             program.buffers[communicate->outputs[i]].layout};
      const DType dtype = plan.graph().tensors()[from.tensor].type.dtype;
      sent += elements_sent(step, from.layout, mesh) * bits_of(dtype) / 8;
    }
    for (int position = 0; position < mesh.size(); ++position) {
      if (mesh.group_leader(position, along) != position) continue;
      GroupTraffic group{{}, communicate->collective, {}, {}, sent};
      for (int member : mesh.group(position, along))
        group.members.push_back(mesh.devices()[static_cast<std::size_t>(member)]);
      group.tensor = program.buffers[communicate->inputs[0]].tensor;
      group.kind = program.buffers[communicate->inputs[0]].kind;
      all.push_back(std::move(group));
    }
  }
  return all;
}
std::vector<GroupTraffic> traffic(const Plan& plan) {
  std::vector<GroupTraffic> all;
  const auto add = [&](const std::vector<InstructionId>& body) {
    for (GroupTraffic& group : traffic(plan, body)) all.push_back(std::move(group));
  };
  for (const StageProgram& stage : plan.compiled.program.stages) {
    add(stage.forward);
    add(stage.backward);
  }
  add(plan.compiled.program.step);
  return all;
}

// Bytes per parameter of every stack's weights, gradients and optimizer state without sharding, counted in the buffers
// of a program compiled with the stack's types.
TEST(StrategyFigures, BytesPerParameterOfEveryStack) {
  const std::map<std::string, int> expected = {// fp32 weights, gradients, moments: 4 + 4 + 8
                                               {"pytorch-ddp", 16},
                                               {"pytorch-ddp-1.13", 16},
                                               {"deepspeed-moe", 16},
                                               {"pytorch-fsdp", 16},
                                               {"weft", 16},
                                               {"weft-cuda", 16},
                                               {"ddp", 16},
                                               {"fsdp", 16},
                                               {"pytorch-eager", 16},
                                               {"torchtitan", 16},
                                               {"torchtitan-eager", 16},
                                               {"torchtitan-compiled-loss", 16},
                                               {"torchtitan-async-tp", 16},
                                               {"pytorch-compile", 16},
                                               {"pytorch-graphs", 16},
                                               {"llm-foundry", 16},
                                               {"llm-foundry-pure", 16},
                                               {"maxtext", 16},
                                               {"pax", 16},
                                               // 16-bit weights and gradients, fp32 masters and moments: 2 + 2 + 12
                                               {"megatron-deepspeed", 16},
                                               {"megatron-deepspeed-blocking", 16},
                                               {"megatron-moe-layer", 16},
                                               {"megatron-moe-layer-deepep", 16},
                                               {"megatron-moe-layer-hybridep", 16},
                                               {"deepspeed-zero3", 16},
                                               {"megatron-2020", 16},
                                               {"megatron-2021", 16},
                                               {"nemo-24.09", 16},
                                               {"nemo-24.05", 16},
                                               {"nemo-nemotron", 16},
                                               {"nemo-nemotron-340b", 12},  // moments in bf16
                                               {"nemo", 16},
                                               {"oneflow", 16},
                                               // 16-bit weights, fp32 gradients, masters and moments: 2 + 4 + 12
                                               {"megatron-lm", 18},
                                               {"megatron-lm-tp-overlap", 18},
                                               {"megatron-fsdp", 18},
                                               {"megatron-2022", 18},
                                               {"megatron-deepspeed-bf16", 18},
                                               {"megatron-deepspeed-blocking-bf16", 18},
                                               {"megatron-lm-b200", 18},
                                               {"dlperf-pytorch", 18},
                                               {"dlperf-horovod", 18},
                                               {"dlperf-paddle", 18},
                                               {"nanotron", 18},
                                               {"internevo", 16},
                                               {"alpa", 16},
                                               // everything in 16 bits: 2 + 2 + 4
                                               {"pytorch-bf16", 8},
                                               {"dle-bert", 18}};
  for (const std::string& name : stack_names()) {
    ASSERT_TRUE(expected.contains(name)) << name;
    const SoftwareStack stack = find_stack(name).value();
    const auto bytes = [](const Figure<std::optional<DType>>& dtype) {
      return dtype.value ? bits_of(*dtype.value) / 8 : 0;
    };
    const Plan plan = compile_plan("gpt2-124m:layers=2,hidden=32,heads=4,vocab=64,dropout=0", "dp=8", 8,
                                   {.seq = 8, .dtype = *stack.weight_dtype.value},
                                   {.master_weights = stack.master_dtype.value.has_value(),
                                    .moment_dtype = *stack.moment_dtype.value,
                                    .gradient_dtype = stack.gradient_dtype.value});
    const HeldBytes held = peak_memory(plan.compiled.program, plan.training, plan.compiled.schedule)[0];
    const auto parameters = static_cast<double>(plan.graph().parameter_count());
    EXPECT_DOUBLE_EQ(static_cast<double>(held.parameters.value) / parameters, bytes(stack.weight_dtype)) << name;
    EXPECT_DOUBLE_EQ(static_cast<double>(held.gradients.value) / parameters, bytes(stack.gradient_dtype)) << name;
    EXPECT_DOUBLE_EQ(static_cast<double>(held.optimizer.value) / parameters,
                     bytes(stack.master_dtype) + 2 * bytes(stack.moment_dtype))
        << name;
    EXPECT_EQ(stack.bytes_per_parameter(), expected.at(name)) << name;
    EXPECT_DOUBLE_EQ(static_cast<double>((held.parameters + held.gradients + held.optimizer).value) / parameters,
                     expected.at(name))
        << name;
  }
}

// A ring moves 2(n−1)/n of the gradients through every device; scattered and gathered (ZeRO) just as much.
TEST(StrategyFigures, DataParallelSendsTheRingsVolume) {
  for (const int n : {2, 8, 32})
    for (const char* zero : {"0", "1", "3"}) {
      const Plan plan = compile_plan("llama3-8b:layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=256",
                                     fmt::format("dp={},zero={}", n, zero), n, {.seq = 8}, {.clip_norm = std::nullopt});
      double gradients = 0, weights = 0;
      for (const GroupTraffic& group : traffic(plan)) {
        if (plan.graph().tensors()[group.tensor].type.shape.empty()) continue;  // the loss
        ASSERT_EQ(static_cast<int>(group.members.size()), n);
        (group.collective == Collective::AllGather ? weights : gradients) += group.sent;
      }
      const double psi = static_cast<double>(plan.graph().parameter_count()), share = (n - 1.0) / n;
      const bool all_reduced = std::string_view(zero) == "0";
      EXPECT_NEAR(gradients, (all_reduced ? 2 : 1) * share * 2 * psi, 1e-6 * psi) << "zero=" << zero << " n=" << n;
      // ZeRO-1 gathers the updated weights once, ZeRO-3 before forward and again before backward, which does not read
      // the embedding of 256 tokens.
      const double gathered = all_reduced ? 0 : std::string_view(zero) == "1" ? psi : 2 * psi - 256 * 64;
      EXPECT_NEAR(weights, share * 2 * gathered, 1e-6 * psi) << "zero=" << zero << " n=" << n;
    }
}

// Korthikanti et al. 2022, table 2: activation bytes of a layer, fp16, unfused attention with dropout, on one of t
// devices. 5·a·s²·b is what selective recomputation drops; the 10·s·b·h outside of the split linears are split too with
// sequence parallelism; a layer that is computed again keeps its input only.
TEST(StrategyFigures, ActivationsOfALayerAreKorthikantisForEveryVariant) {
  const double s = 128, b = 2, h = 256, a = 8, t = 4;
  const auto layer = [&](const char* shorthand, std::int64_t devices) {
    const auto held = [&](int layers) {
      const Plan plan = compile_plan(
          fmt::format("gpt2-124m:layers={},hidden=256,heads=8,vocab=512,dropout=0.1,fused_attention=0", layers),
          shorthand, devices, {.batch = 2, .seq = 128, .dtype = DType::F16});
      return static_cast<double>(
          peak_memory(plan.compiled.program, plan.training, plan.compiled.schedule)[0].activations.value);
    };
    return held(3) - held(2);
  };
  const double sbh = s * b * h, scores = 5 * a * s * s * b;
  const std::tuple<const char*, std::int64_t, double> cases[] = {
      {"dp=1", 1, 34 * sbh + scores},
      {"dp=1,recompute=selective", 1, 34 * sbh},
      {"dp=1,recompute=full", 1, 2 * sbh},
      {"tp=4,sp=0", 4, (10 + 24 / t) * sbh + scores / t},
      {"tp=4,sp=1", 4, 34 / t * sbh + scores / t},
      {"tp=4,sp=0,recompute=selective", 4, (10 + 24 / t) * sbh},
      {"tp=4,sp=1,recompute=selective", 4, 34 / t * sbh},
  };
  for (const auto& [shorthand, devices, formula] : cases) {
    const double bytes = layer(shorthand, devices);
    EXPECT_NEAR(bytes / formula, 1.0, 0.02) << shorthand;
    fmt::print("{:<32} {:>9.0f} bytes per layer, the formula {:>9.0f} ({:+.2f} %)\n", shorthand, bytes, formula,
               100 * (bytes / formula - 1));
  }
}

// Operator by operator, a layer keeps its input and what products make, but not the last one's result, which only the
// sum after it reads: the next layer's input is that.
TEST(StrategyFigures, RecomputingOperatorByOperatorKeepsWhatProductsMake) {
  const auto held = [&](int layers) {
    const Plan plan =
        compile_plan(fmt::format("llama3-8b:layers={},hidden=256,heads=8,kv_heads=2,ffn=512,vocab=512", layers),
                     "dp=1,recompute=op", 1, {.batch = 2, .seq = 128, .dtype = DType::BF16});
    return peak_memory(plan.compiled.program, plan.training, plan.compiled.schedule)[0].activations.value;
  };
  const std::int64_t input = 256, qkv = 256 + 2 * 64, core = 256, out = 256, gate_up = 2 * 512, tokens = 2 * 128;
  const std::int64_t lse = 4 * 8;  // bytes: an fp32 number for each head
  EXPECT_EQ(held(4) - held(3), tokens * (2 * (input + qkv + core + out + gate_up) + lse));
}

// Jia et al. 2019 report 65.8 GB moved per iteration for NMT under data parallelism on 64 K80. Both accounts of the
// synchronisation give 2(n−1)·4Ψ bytes in all: a ring sends 2(n−1)/n·4Ψ from each of n devices; FlexFlow's runtime
// brings n−1 gradients to where a weight is updated and n−1 copies of the weight back. They differ in where the bytes
// pass (evenly, or through the updating device), not in how many there are. Weft's NMT has Ψ = 134.0 M parameters with
// the vocabulary of 32,000 of Wu et al.: 67.5 GB, 2.6 % above the paper, which does not give its vocabulary; its figure
// is that of Ψ = 130.6 M, as with a vocabulary of 30,900.
TEST(StrategyFigures, NmtOnSixtyFourK80MovesWhatFlexFlowCounted) {
  const int n = 64;
  const Plan plan = compile_plan("nmt", "dp=64", n, {.batch = 64, .seq = 40, .dtype = DType::F32},
                                 {.optimizer = OptimizerKind::Sgd, .clip_norm = std::nullopt});
  double ring = 0, other = 0;
  for (const GroupTraffic& group : traffic(plan)) {
    const double bytes = group.sent * static_cast<double>(group.members.size());
    (group.kind == BufferKind::State ? ring : other) += bytes;
  }
  const double psi = static_cast<double>(plan.graph().parameter_count()), flexflow = 2.0 * (n - 1) * 4 * psi;
  fmt::print(
      "NMT on 64 K80: {:.1f} GB by ring, {:.1f} GB by FlexFlow's account, 65.8 GB reported; {:.0f} bytes besides\n",
      ring / 1e9, flexflow / 1e9, other);
  EXPECT_NEAR(ring / flexflow, 1.0, 1e-9);
  EXPECT_NEAR(ring / 65.8e9, 1.0, 0.03);
  EXPECT_LT(other, 1e6);  // the loss
}

const char* const kGpt = "gpt2-124m:layers=2,hidden=16,heads=4,vocab=16,dropout=0";

// Proteus crashes where a partial sum meets a stage border.
TEST(StrategyFigures, APartialSumAtAStageBorderIsReducedBeforeItIsSent) {
  const TrainingGraph training =
      make_training_graph(build_model(kGpt, {.batch = 4, .seq = 4}).value(), {.master_weights = false}).value();
  const Result<Strategy> strategy = parse_strategy(
      "mesh: {axes: {pp: 2, tp: 2}}\n"
      "schedule:\n"
      "  micro_batches: 2\n"
      "  stages:\n"
      "    - [layers.0.attn_norm, layers.0.attn]\n"  // ends in the row-parallel linear of attention
      "    - [layers.0.attn_add, layers.0.mlp_norm, layers.0.mlp, layers.0.mlp_add, layers.1]\n"
      "rules:\n"
      "  - {match: layers.*.attn.qkv, compute: {tp: n}}\n"
      "  - {match: layers.*.attn.out, compute: {tp: k}}\n"
      "  - {match: layers.*.mlp.up, compute: {tp: n}}\n"
      "  - {match: layers.*.mlp.down, compute: {tp: k}}\n",
      "plan.yaml");
  ASSERT_TRUE(strategy.ok()) << strategy.error().message;
  const Plan plan = compile_plan(training, *strategy, parse_cluster("dgx-h100:1").value());
  EXPECT_EQ(reference::differs_from_one_device(plan.training, plan.compiled.program, plan.compiled.schedule), "");
  const Program& program = plan.compiled.program;
  for (const Transfer& transfer : program.transfers) EXPECT_FALSE(is_partial(program.buffers[transfer.from].layout));
  int reductions = 0;
  for (const GroupTraffic& group : traffic(plan, program.stages[0].forward))
    reductions += group.collective == Collective::AllReduce || group.collective == Collective::ReduceScatter ? 1 : 0;
  EXPECT_EQ(reductions, 1);  // the one at the border
}

// The bias after a row-parallel linear is whole on every device and sees the whole gradient: nothing to add up. The
// biases and norms of a tensor-parallel layer need no collective at all.
TEST(StrategyFigures, BiasesOfRowParallelLinearsAreNotAllReduced) {
  const Plan plan = compile_plan(kGpt, "tp=4,sp=0", 4, {.batch = 2, .seq = 8});
  for (const GroupTraffic& group : traffic(plan))
    EXPECT_NE(group.kind, BufferKind::State) << plan.graph().name(group.tensor);
  // With sequence parallelism each device has a part of the tokens: biases outside of the split linears and norms are
  // added up, and only they.
  const Plan parallel = compile_plan(kGpt, "tp=4,sp=1", 4, {.batch = 2, .seq = 8});
  int reduced = 0;
  for (const GroupTraffic& group : traffic(parallel))
    if (group.kind == BufferKind::State) {
      EXPECT_EQ(parallel.graph().tensors()[group.tensor].type.shape.size(), 1u) << parallel.graph().name(group.tensor);
      ++reduced;
    }
  EXPECT_GT(reduced, 0);
}

// Proteus takes a PCIe factor for the first node only. Here two nodes that change places change nothing: every group
// sends what its counterpart sent.
TEST(StrategyFigures, NodesAreTreatedAlike) {
  const Cluster cluster = parse_cluster("k80x4:2").value();
  for (const char* shorthand : {"dp=8", "dp=8,zero=3", "tp=4,dp=2", "tp=4,pp=2,ga=2", "tp=2,pp=2,dp=2,zero=1,ga=2"}) {
    const Parallelism parallelism = complete(parse_shorthand(shorthand).value(), 8).value();
    Graph graph = build_model("gpt2-124m:layers=4,hidden=16,heads=4,vocab=16,dropout=0",
                              {.batch = parallelism.graph_batch(), .seq = 8})
                      .value();
    Strategy strategy = expand(parallelism, graph);
    const TrainingGraph training = make_training_graph(std::move(graph)).value();
    using Sent = std::map<std::pair<std::set<std::size_t>, std::string_view>, double>;  // by group and collective
    const auto counted = [&](const std::vector<std::int64_t>& devices, std::size_t shift) {
      strategy.mesh.devices = devices;
      const Plan plan = compile_plan(training, strategy, cluster);
      Sent sent;
      for (const GroupTraffic& group : traffic(plan)) {
        std::set<std::size_t> members;
        for (DeviceId device : group.members) members.insert((device.index() + shift) % 8);
        sent[{members, name_of(group.collective)}] += group.sent;
      }
      return sent;
    };
    const Sent first = counted({0, 1, 2, 3, 4, 5, 6, 7}, 0);
    EXPECT_EQ(first, counted({4, 5, 6, 7, 0, 1, 2, 3}, 4)) << shorthand;
    EXPECT_FALSE(first.empty());
    // Inside one plan, too, what a group sends does not depend on the node it is in (stages differ in what they hold).
    if (parallelism.pp > 1) continue;
    for (const auto& [group, bytes] : first) {
      std::set<std::size_t> mirrored;
      for (std::size_t device : group.first) mirrored.insert((device + 4) % 8);
      const auto other = first.find({mirrored, group.second});
      EXPECT_EQ(other == first.end() ? bytes : other->second, bytes) << shorthand;
    }
  }
}

}  // namespace
}  // namespace weft
