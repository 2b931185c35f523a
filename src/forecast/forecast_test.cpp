#include "forecast/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>

#include "cost/analytic.h"
#include "forecast/scratch.h"
#include "graph/operators.h"
#include "price/communications.h"

namespace weft {
namespace {

Plan plan_of(const PlanRequest& request) {
  Result<Plan> plan = make_plan(request);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return std::move(plan).value();
}

Forecast forecast_of(const Plan& plan, const ForecastOptions& options = {}) {
  Result<Forecast> made = forecast(plan, AnalyticCost(plan.stack()), options);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return std::move(made).value();
}

// Narayanan et al. 2021, equation 2 and its derivation: forward and backward of a GPT with l layers of width h, B
// sequences of s tokens, vocabulary V take 72·B·s·l·h²·(1 + s/6h + V/12lh) FLOPs. GPT-3 175B: l = 96, h = 12288.
TEST(Forecast, ModelFlopsAreThoseOfThePaper) {
  const Plan plan = plan_of({.model = "gpt3-175b",
                             .cluster = "dgx-a100:8",
                             .strategy = "tp=8,pp=8",
                             .global_batch = 16,
                             .micro_batch = 1,
                             .seq = 2048});
  ASSERT_TRUE(plan.model->vocabulary.padded());  // 51,200 stored; 50,257 count
  const Forecast found = forecast_of(plan);
  const double tokens = 16.0 * 2048, layers = 96, h = 12288;
  const double layer_flops = 72 * tokens * layers * h * h;
  EXPECT_NEAR(found.flops.model.value / (layer_flops * (1 + 2048 / (6 * h) + 50257 / (12 * layers * h))), 1, 1e-12);
  // Half of attention: its term is s/6h.
  EXPECT_NEAR(found.flops.causal.value / (layer_flops * (1 + 2048 / (12 * h) + 50257 / (12 * layers * h))), 1, 1e-12);
  EXPECT_EQ(found.flops.recomputed.value, 0);
  // A100, dense bf16: 312 TFLOPS; 64 of them.
  EXPECT_DOUBLE_EQ(found.peak.value, 64 * 312e12);
  EXPECT_EQ(found.arithmetic, Arithmetic::kBf16);
  EXPECT_DOUBLE_EQ(found.mfu, found.flops.model.value / (found.step_s * 64 * 312e12));
  EXPECT_DOUBLE_EQ(found.samples_per_s, 16 / found.step_s);
  EXPECT_DOUBLE_EQ(found.tokens_per_s, 16 * 2048 / found.step_s);
  EXPECT_DOUBLE_EQ(found.step_s, static_cast<double>(found.step) * 1e-12);
}

// Logits of bf16, backward: the program counts them and their gradient, 2 + 2 bytes an element. Megatron-LM has an fp32
// copy made in place to its gradient, 4, and then the bf16 one beside it: 6. PyTorch has three fp32 tensors, 12, and
// forward the converted logits and their log-softmax, 8.
TEST(Forecast, APlainCrossEntropyHoldsFp32CopiesOfTheLogits) {
  const TensorType logits{DType::BF16, {128, 1000}}, labels{DType::I64, {128}};
  const Signature forward = make_signature(OpKind::CrossEntropy, {}, std::vector{logits, labels}).value();
  const auto bytes = [&](const char* stack, const char* gradient) {
    Signature of = forward;
    of.gradient = gradient;
    if (!of.gradient.empty()) of.outputs.assign(1, of.inputs[0]);
    return scratch_per_element(of, find_stack(stack).value());
  };
  EXPECT_EQ(bytes("torchtitan", ""), 8);
  EXPECT_EQ(bytes("torchtitan", "grad"), 12 - 4);
  EXPECT_EQ(bytes("megatron-deepspeed", ""), 4);
  EXPECT_EQ(bytes("megatron-deepspeed", "grad"), 6 - 4);
  EXPECT_EQ(bytes("torchtitan-compiled-loss", "grad"), 0);
}

// Nothing runs beside the host: every kernel is issued when the one before has ended.
TEST(Forecast, BlockingLaunchesExposeTheHost) {
  PlanRequest request{.model = "gpt2-124m",
                      .cluster = "dgx-a100:1",
                      .strategy = "dp=1",
                      .global_batch = 8,
                      .micro_batch = 8,
                      .seq = 1024,
                      .dtype = "fp16",
                      .stack = "megatron-deepspeed-blocking"};
  request.device_count = 1;
  const Plan blocking = plan_of(request);
  request.stack = "megatron-deepspeed";
  const Plan ahead = plan_of(request);
  const Forecast slow = forecast_of(blocking), fast = forecast_of(ahead);
  const auto host_bound = [](const Forecast& of) { return static_cast<double>(of.host_bound) * 1e-12; };
  const double host = blocking.stack().host_per_operator.value.value;
  EXPECT_LT(host_bound(fast), 0.001);
  EXPECT_GT(host_bound(slow), 300 * host);  // a dozen layers of more than 25 kernels, forward and backward
  EXPECT_NEAR(slow.step_s - host_bound(slow), fast.step_s - host_bound(fast), 0.01 * fast.step_s);
}

// Full recomputation runs the layers' forward again, 24·B·s·l·h²·(1 + s/6h), but not the head.
TEST(Forecast, RecomputedFlopsCountForHfuOnly) {
  const Plan plan = plan_of({.model = "gpt2-124m",
                             .cluster = "dgx-a100:1",
                             .strategy = "dp=8,recompute=full",
                             .global_batch = 8,
                             .seq = 1024,
                             .stack = "megatron-lm"});
  const Forecast found = forecast_of(plan);
  const double tokens = 8.0 * 1024, layers = 12, h = 768;
  EXPECT_NEAR(found.flops.recomputed.value / (24 * tokens * layers * h * h * (1 + 1024 / (6 * h))), 1, 1e-12);
  EXPECT_GT(found.hfu, found.mfu);
}

// Attention in separate kernels has the same products, and the same half of them under the mask.
TEST(Forecast, SeparateAttentionKernelsHaveTheSameFlops) {
  const PlanRequest fused{.model = "gpt2-124m",
                          .cluster = "dgx-a100:1",
                          .strategy = "dp=8",
                          .global_batch = 8,
                          .seq = 1024,
                          .stack = "megatron-lm"};
  PlanRequest separate = fused;
  separate.model += ":fused_attention=0";
  const Forecast one = forecast_of(plan_of(fused)), other = forecast_of(plan_of(separate));
  EXPECT_NEAR(other.flops.model.value / one.flops.model.value, 1, 1e-12);
  EXPECT_NEAR(other.flops.causal.value / one.flops.causal.value, 1, 1e-12);
}

// Mistral 7B: 32 layers, 32 heads of 128, a window of 4,096. Attention over T tokens has 4·T·keys·4,096 FLOPs a layer
// forward and twice that backward.
TEST(Forecast, ASlidingWindowCountsTheKeysItSees) {
  const auto flops = [](const std::string& model, std::int64_t seq, const std::string& stack = "megatron-lm") {
    return forecast_of(plan_of(
        {.model = model, .cluster = "dgx-h100:1", .strategy = "tp=8", .global_batch = 1, .seq = seq, .stack = stack}));
  };
  const double tokens = 65536, window = 4096;
  const auto attention = [&](double keys) { return 3 * 32 * 4 * tokens * keys * 4096; };
  const Forecast slides = flops("mistral-7b", 65536), whole = flops("mistral-7b:window=0", 65536);
  EXPECT_NEAR((whole.flops.model.value - slides.flops.model.value) / attention(tokens - window), 1, 1e-9);
  // The first 4,096 queries see half of their windows under the mask.
  const double masked = window * (1 - window / tokens / 2);
  EXPECT_NEAR((slides.flops.model.value - slides.flops.causal.value) / attention(window - masked), 1, 1e-9);
  EXPECT_NEAR((whole.flops.model.value - whole.flops.causal.value) / attention(tokens / 2), 1, 1e-9);
  EXPECT_LT(slides.mfu, 1);
  EXPECT_GT(slides.mfu, 0.2);
  // Separate kernels count the same; a window as long as the sequence hides nothing.
  const Forecast separate = flops("mistral-7b:fused_attention=0", 8192), fused = flops("mistral-7b", 8192);
  EXPECT_NEAR(separate.flops.model.value / fused.flops.model.value, 1, 1e-12);
  EXPECT_NEAR(separate.flops.causal.value / fused.flops.causal.value, 1, 1e-12);
  EXPECT_EQ(flops("mistral-7b", 4096).flops.model.value, flops("mistral-7b:window=0", 4096).flops.model.value);
  EXPECT_EQ(flops("mistral-7b", 4096).flops.causal.value, flops("mistral-7b:window=0", 4096).flops.causal.value);
}

// 1 + 0.1 · (√(2 ln 32) − √(2 ln 8)) = 1.0593 times as long: a step goes by the slowest of all devices.
TEST(Forecast, ComputationTakesAsLongAsOnTheSlowestDevice) {
  const auto compute = [](const char* step_jitter) {
    const std::string path = ::testing::TempDir() + "weft_forecast_jitter.yaml";
    std::ofstream(path) << "networks: {uneven: {collisions: 0, message: 0us, jitter: 0us, step_jitter: " << step_jitter
                        << "}}\ncluster: \"dgx-h100:4,network=uneven\"\n";
    const Plan plan = plan_of({.model = "gpt2-124m",
                               .cluster = path,
                               .strategy = "dp=32",
                               .global_batch = 32,
                               .seq = 1024,
                               .stack = "megatron-lm"});
    std::remove(path.c_str());
    return static_cast<double>(forecast_of(plan, {.record = true}).breakdown.value()[Activity::Optimizer]);
  };
  EXPECT_NEAR(compute("0.1") / compute("0"), 1.0593, 1e-4);
}

TEST(Forecast, TheBreakdownSumsToTheStep) {
  const std::vector<PlanRequest> requests = {
      {.model = "llama3-8b:layers=4", .cluster = "dgx-h100:2", .strategy = "tp=4,pp=2,dp=2,zero=1,ga=4"},
      {.model = "mixtral-8x7b:layers=2", .cluster = "dgx-h100:1", .strategy = "ep=8", .seq = 512},
      {.model = "gpt2-124m", .cluster = "dgx-a100:1", .strategy = "fsdp=8", .stack = "pytorch-fsdp"},
      {.model = "gpt2-124m", .cluster = "dgx-a100:1", .strategy = "cp=2,dp=4", .global_batch = 8},
      {.model = "resnet50", .cluster = "dgx-a100:1", .strategy = "dp=8"},
      {.model = "bert-large",
       .cluster = "dgx-a100:3",
       .strategy = "tp=2,pp=3,dp=4,zero=1,sp=0,mbs=8,schedule=dualpipe-v,stages=3x4+5+4+3",
       .global_batch = 256,
       .seq = 512},
  };
  for (const PlanRequest& request : requests)
    for (const Network network : {Network::Fair, Network::Fifo}) {
      const Plan plan = plan_of(request);
      const Forecast found = forecast_of(plan, {.network = network, .record = true});
      ASSERT_TRUE(found.breakdown.has_value());
      EXPECT_EQ(found.breakdown->total(), found.step) << request.model;
      EXPECT_EQ(found.breakdown->done, 0);  // of the agent that ends last
      EXPECT_EQ(found.breakdown->host_bound, found.host_bound) << request.model;
      Picoseconds path = 0;
      for (const PathShare& share : found.critical_path) path += share.time;
      EXPECT_EQ(path, found.step);
      // Without recording the figures are the same.
      const Forecast quick = forecast_of(plan, {.network = network});
      EXPECT_EQ(quick.step, found.step);
      EXPECT_EQ(quick.mfu, found.mfu);
      EXPECT_EQ(quick.memory.size(), found.memory.size());
      EXPECT_FALSE(quick.breakdown.has_value());
    }
}

TEST(Forecast, CommunicationIsToldByWhatItIsFor) {
  const auto exposed = [](const PlanRequest& request) {
    const Forecast found = forecast_of(plan_of(request), {.record = true});
    std::vector<std::string_view> kinds;
    for (int i = static_cast<int>(Activity::Tensor); i < kActivities; ++i)
      if ((*found.breakdown)[static_cast<Activity>(i)] > 0) kinds.push_back(name_of(static_cast<Activity>(i)));
    return kinds;
  };
  const auto has = [](const std::vector<std::string_view>& kinds, std::string_view kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  const auto expert = exposed(
      {.model = "mixtral-8x7b:layers=2", .cluster = "dgx-h100:1", .strategy = "ep=8", .global_batch = 8, .seq = 512});
  EXPECT_TRUE(has(expert, "expert"));
  EXPECT_FALSE(has(expert, "tensor"));
  EXPECT_TRUE(has(exposed({.model = "gpt2-124m", .cluster = "dgx-a100:1", .strategy = "cp=2,dp=4", .global_batch = 8}),
                  "context"));
  const auto tensor =
      exposed({.model = "gpt2-124m", .cluster = "dgx-a100:1", .strategy = "tp=4,pp=2", .global_batch = 4});
  EXPECT_TRUE(has(tensor, "tensor"));
  EXPECT_TRUE(has(tensor, "pipeline"));
  EXPECT_TRUE(has(exposed({.model = "gpt2-124m", .cluster = "dgx-a100:1", .strategy = "dp=8"}), "data"));
}

TEST(Forecast, MemoryIsWhatTheProgramHolds) {
  const std::vector<PlanRequest> requests = {
      {.model = "llama3-8b:layers=8", .cluster = "dgx-h100:1", .strategy = "tp=2,pp=4,ga=12"},
      {.model = "llama3-8b:layers=8", .cluster = "dgx-h100:1", .strategy = "pp=4,dp=2,vpp=2,ga=8"},
      {.model = "llama3-8b:layers=8", .cluster = "dgx-h100:1", .strategy = "pp=4,dp=2,schedule=zb-h1,ga=9"},
      {.model = "llama3-8b:layers=8",
       .cluster = "dgx-h100:1",
       .strategy = "dp=8,zero=3,recompute=full",
       .global_batch = 16},
      {.model = "resnet50", .cluster = "dgx-a100:1", .strategy = "dp=8"},
  };
  for (const PlanRequest& request : requests) {
    const Plan plan = plan_of(request);
    const CompiledStrategy compiled = compile_plan(plan).value();
    const std::vector<HeldBytes> expected = peak_memory(compiled.program, plan.training(), compiled.schedule);
    const Forecast found = forecast_of(plan);
    ASSERT_EQ(found.memory.size(), expected.size()) << request.strategy;
    for (std::size_t rank = 0; rank < expected.size(); ++rank) {
      const HeldBytes& held = found.memory[rank].allocated;
      EXPECT_EQ(held.parameters, expected[rank].parameters);
      EXPECT_EQ(held.gradients, expected[rank].gradients);
      // Scalars on the world mesh count here too, and what frameworks keep beside results: places of pooled elements.
      std::int64_t places = 0;
      for (OpId op : plan.graph().ops().ids())
        if (const Signature& signature = plan.graph().signature(op);
            signature.kind == OpKind::Pool2d && signature.gradient.empty())
          places += 8 * signature.outputs[0].elements() / plan.cluster().device_count();
      EXPECT_NEAR(static_cast<double>(held.total().value), static_cast<double>(expected[rank].total().value + places),
                  64)
          << request.strategy << " rank " << rank;
    }
  }
}

// Proteus calls a plan of 56 GB on 32 GB devices feasible. GPT with 2.65 B parameters, data parallel in fp16 on V100s
// of 32 GB: 16 bytes per parameter are 42 GB, plus activations.
TEST(Forecast, TooMuchMemoryIsInfeasibleWithACulprit) {
  const Plan plan = plan_of({.model = "gpt3-2.7b",
                             .cluster = "dgx2:1",
                             .strategy = "dp=16",
                             .global_batch = 32,
                             .micro_batch = 2,
                             .seq = 1024,
                             .dtype = "fp16",
                             .stack = "megatron-deepspeed"});
  const Forecast found = forecast_of(plan, {.record = true});
  EXPECT_FALSE(found.feasible);
  ASSERT_EQ(found.memory.size(), 1u);
  const ClassForecast& of = found.memory.front();
  EXPECT_EQ(&of, found.fullest());
  EXPECT_LT(of.capacity.value, 34'359'738'368);
  EXPECT_GT(of.device_total.value, 56'000'000'000);
  EXPECT_EQ(of.overshoot(), of.device_total - of.budget);
  EXPECT_EQ(of.budget.value, static_cast<std::int64_t>(static_cast<double>(of.capacity.value) * 0.96));
  // 1,343 MiB of context: the stack is of before CUDA 11.7. 128 MiB a communicator.
  EXPECT_EQ(of.device_total.value, of.reserved.value + (1343 << 20) + (std::int64_t{128} << 20) * of.communicators);
  ASSERT_EQ(of.largest.size(), 5u);
  EXPECT_TRUE(std::is_sorted(of.largest.begin(), of.largest.end(),
                             [](const auto& a, const auto& b) { return a.bytes > b.bytes; }));
  EXPECT_EQ(of.largest.front().name.substr(0, 9), "layers.*.");
  ASSERT_TRUE(of.peak_time.has_value());
  EXPECT_GT(*of.peak_time, 0);
  EXPECT_LE(*of.peak_time, found.step);
  // With all of the memory to use it is no better; on devices of 80 GB it fits.
  PlanRequest all = plan.job->words;
  all.strategy = plan.name;
  all.micro_batch = 2;
  all.headroom = 0;
  EXPECT_FALSE(forecast_of(plan_of(all)).feasible);
  EXPECT_TRUE(forecast_of(plan_of({.model = "gpt3-2.7b",
                                   .cluster = "dgx-a100:2",
                                   .strategy = "dp=16",
                                   .global_batch = 32,
                                   .micro_batch = 2,
                                   .seq = 1024,
                                   .dtype = "fp16",
                                   .stack = "megatron-deepspeed"}))
                  .feasible);
}

TEST(Forecast, FoldedAndUnfoldedAgreeExactly) {
  const std::vector<PlanRequest> requests = {
      // odd counts of nodes
      {.model = "gpt2-124m:layers=3", .cluster = "dgx-a100:3", .strategy = "tp=4,dp=6", .global_batch = 12},
      {.model = "gpt2-124m:layers=6", .cluster = "dgx-a100:3", .strategy = "tp=2,pp=3,dp=4", .global_batch = 32},
      // groups across nodes
      {.model = "gpt2-124m:layers=2", .cluster = "k80x4:3", .strategy = "tp=3,dp=4,sp=0", .global_batch = 8},
      // an oversubscribed fat tree
      {.model = "gpt2-124m:layers=2",
       .cluster = "dgx-a100:5,fabric=fat-tree,leaf=2,oversubscription=4",
       .strategy = "tp=2,dp=20",
       .global_batch = 20},
      // mixed nodes
      {.model = "gpt2-124m:layers=2", .cluster = "dgx1-v100:1+p100x8:2", .strategy = "tp=2,dp=12", .global_batch = 12},
      {.model = "gpt2-124m:layers=4",
       .cluster = "dgx1-v100:1+p100x8:1",
       .strategy = "tp=2,pp=2,dp=4",
       .global_batch = 32},
  };
  for (const PlanRequest& request : requests) {
    const Plan plan = plan_of(request);
    for (const Network network : {Network::Fair, Network::Fifo}) {
      const Forecast folded = forecast_of(plan, {.network = network, .record = true});
      const Forecast all = forecast_of(plan, {.network = network, .fold = false, .record = true});
      EXPECT_EQ(folded.step, all.step) << request.cluster << " " << request.strategy << " "
                                       << (network == Network::Fair ? "fair" : "fifo");
      EXPECT_EQ(all.agents, static_cast<std::int64_t>(plan.ranks().size()));
      EXPECT_LE(folded.agents, all.agents);
      EXPECT_EQ(folded.mfu, all.mfu);
    }
  }
}

TEST(Forecast, StagesSendInPartsWhatTensorParallelRanksHoldAlike) {
  // Two stages of eight ranks, each rank with a NIC of its own. Without sequence parallelism all eight hold the whole
  // activation: sent whole, a NIC carries all of it; in parts, an eighth, and NVSwitch the rest.
  Plan plan = make_plan({.model = "llama2-7b:layers=2",
                         .cluster = "dgx-a100:2",
                         .strategy = "tp=8,pp=2,sp=0,ga=2",
                         .seq = 1024,
                         .stack = "megatron-lm"})
                  .value();
  const auto sent = [&](bool in_parts) {
    SoftwareStack stack = plan.stack();
    stack.p2p_in_parts.value = in_parts;
    plan = with_stack(std::move(plan), std::move(stack));
    const AnalyticCost cost(plan.stack());
    const Forecast found = forecast(plan, cost).value();
    for (const BusiestLink& link : found.links)
      if (link.kind == "nic") return static_cast<double>(link.bytes);
    return 0.0;
  };
  // Forward and backward each send 2 micro-batches of 1024 · 4096 bf16; the two ways of a NIC are two links.
  EXPECT_NEAR(sent(false), 2.0 * 1024 * 4096 * 2, 0.01 * 2 * 1024 * 4096 * 2);
  EXPECT_NEAR(sent(false) / sent(true), 8, 0.1);
}

PlanRequest small_llama(std::string dtype) {
  return {.model = "llama3-8b:layers=2",
          .cluster = "dgx-h100:1",
          .strategy = "dp=8",
          .global_batch = 8,
          .micro_batch = 1,
          .seq = 1024,
          .dtype = std::move(dtype)};
}

TEST(Forecast, UtilisationIsOfThePeakThatProductsRunIn) {
  const std::pair<const char*, Arithmetic> types[] = {
      {"bf16", Arithmetic::kBf16}, {"tf32", Arithmetic::kTf32}, {"fp8", Arithmetic::kFp8}, {"fp32", Arithmetic::kFp32}};
  for (const auto& [name, arithmetic] : types) {
    const Plan plan = plan_of(small_llama(name));
    EXPECT_EQ(peak_of(plan).value, 8 * product_rate(plan.cluster().spec(DeviceId(0)), arithmetic).peak.value) << name;
  }
}

// Linears of a layer: 4096·6144 of queries, keys and values, 4096² out, 4096·28672 gate and up, 14336·4096 down.
TEST(Forecast, Fp8KeepsItsWeightsTwiceMoreInAByteEach) {
  const auto parameters = [](const char* dtype) {
    return forecast_of(plan_of(small_llama(dtype))).memory.front().allocated.parameters.value;
  };
  const std::int64_t linears = 4096LL * (6144 + 4096 + 28672 + 14336);
  EXPECT_EQ(parameters("fp8") - parameters("bf16"), 2 * linears * 2);
}

// One layer and a vocabulary: the peak is at the loss. Fused it holds the logits and their gradient, 2 + 2 bytes; unfused
// (Megatron-LM) logits and fp32 probabilities, 2 + 4, and backward those and the gradient, 4 + 2.
TEST(Forecast, PlainCrossEntropyHoldsItsLogitsInFp32) {
  Plan plan = plan_of({.model = "gpt2-124m:layers=1",
                       .cluster = "dgx-h100:1",
                       .strategy = "dp=8",
                       .global_batch = 64,
                       .micro_batch = 8,
                       .seq = 1024});
  const auto held = [&](bool fused) {
    SoftwareStack stack = plan.stack();
    stack.fused_cross_entropy.value = fused;
    plan = with_stack(std::move(plan), std::move(stack));
    return forecast_of(plan).memory.front().allocated.total().value;
  };
  EXPECT_EQ(held(false) - held(true), 2 * 8 * 1024 * padded_vocabulary(plan.stack(), 50257, 1));
}

// Weights that lie in one buffer are cut as that buffer, whose end alone is padded; those that do not are padded one by
// one, in copies of (5 + 1) parts of a fifth: 1.2 times all weights, at 2 bytes each.
TEST(Forecast, FlatBuffersAreGatheredInPlaceWhateverTheirTensors) {
  Plan plan = plan_of({.model = "gpt2-124m:layers=1",
                       .cluster = "dgx-h100:1",
                       .strategy = "dp=5,zero=1,mbs=1",
                       .global_batch = 5,
                       .seq = 128,
                       .device_count = 5});
  const auto buffers = [&](bool flat) {
    SoftwareStack stack = plan.stack();
    stack.uneven_parts.value = Parts::Padded;
    stack.flat_parameters.value = stack.flat_gradients.value = flat;
    plan = with_stack(std::move(plan), std::move(stack));
    return forecast_of(plan).memory.front().allocated.buffers.value;
  };
  const std::int64_t weights = 2 * plan.stored_parameters();
  EXPECT_GE(buffers(false), 6 * weights / 5);
  EXPECT_LT(buffers(true), weights);
}

// Over whatever devices experts are distributed, rows are exchanged there and back once in forward and once in
// backward, and that time counts as expert communication, although the devices are those of tensor and context
// parallelism. Rows gathered over etp after the exchange are gathered again for the weight gradient, not exchanged
// again.
TEST(Forecast, RowsAreExchangedOnceByExpertsThatShareTheDevicesOfOtherDegrees) {
  const Plan plan = plan_of({.model = "mixtral-8x7b:layers=1,hidden=256,heads=4,kv_heads=4,expert_ffn=64,vocab=1024",
                             .cluster = "dgx-h100:1",
                             .strategy = "tp=4,etp=2,cp=2,ep=4",
                             .global_batch = 1,
                             .seq = 1024});
  const CompiledStrategy compiled = compile_plan(plan).value();
  const IdVec<InstructionId, Activity> activities = activities_of(compiled.program, plan.training().graph);
  int exchanges = 0;
  for (InstructionId id : compiled.program.instructions.ids()) {
    const auto* communicate = std::get_if<Communicate>(&compiled.program.instructions[id].what);
    if (!communicate || communicate->collective != Collective::AllToAll) continue;
    ++exchanges;
    EXPECT_EQ(activities[id], Activity::Expert);
  }
  EXPECT_EQ(exchanges, 4);
}

// Of 32 experts in 8 groups a token chooses 8 in 4 groups, 16 experts on 4 of 8 devices: it misses one of these with
// probability C(12, 8) / C(16, 8) = 495 / 12,870. With one expert on each of 8 devices, 2 chosen are on 2. With four
// experts per device, received rows must be permuted by expert; with one they need not.
TEST(Forecast, TokensGoOnceToADeviceWithSeveralOfTheirExperts) {
  struct Case {
    const char* experts;
    double sent;
    int repacked;
  };
  for (const Case& each : {Case{"experts=32,top_k=8,expert_groups=8,top_groups=4", 4 * (1 - 495.0 / 12870) / 8, 1},
                           Case{"experts=8,top_k=2", 1, 0}}) {
    const Plan plan = plan_of({.model = fmt::format("mixtral-8x7b:layers=1,hidden=256,heads=4,kv_heads=4,expert_ffn=64,"
                                                    "vocab=1024,{}",
                                                    each.experts),
                               .cluster = "dgx-h100:1",
                               .strategy = "dp=8,ep=8",
                               .global_batch = 8,
                               .micro_batch = 1,
                               .seq = 1024});
    const CompiledStrategy compiled = compile_plan(plan).value();
    const AnalyticCost cost(plan.stack());
    Communications communications(compiled.program, plan.training().graph, plan.cluster(), cost);
    int exchanges = 0;
    for (const Instruction& instruction : compiled.program.instructions) {
      const auto* communicate = std::get_if<Communicate>(&instruction.what);
      if (!communicate || communicate->collective != Collective::AllToAll) continue;
      ++exchanges;
      const auto payload = [&](bool once) {
        Instruction sent = instruction;
        std::get<Communicate>(sent.what).tokens_once = once;
        const KindId kind = communications.kind_of(sent);
        return communications.payload_of(sent, communications.groups()[communications.kinds()[kind].group_at.front()]);
      };
      EXPECT_NEAR(static_cast<double>(payload(true).bytes) / static_cast<double>(payload(false).bytes), each.sent,
                  1e-5);
      EXPECT_EQ(payload(false).repacked, each.repacked * payload(false).bytes);
    }
    EXPECT_EQ(exchanges, 4);  // rows there and back, forward and backward: none is exchanged again
  }
}

// LLM Foundry allows batches that micro-batches of 3 do not divide: 15, 16 and 18 samples per replica are 5·3, 5·3 + 1
// and 6·3. The sixteenth sample costs less than two more would, and at least its computation.
TEST(Forecast, ASmallerLastMicroBatchTakesAndHoldsLess) {
  const auto of = [](std::int64_t batch, const char* strategy) {
    return make_plan({.model = "mpt-7b:layers=4",
                      .cluster = "dgx-a100:1",
                      .strategy = strategy,
                      .global_batch = batch,
                      .stack = "llm-foundry"})
        .value();
  };
  for (const char* strategy : {"dp=8,mbs=3", "pp=2,dp=4,mbs=3"}) {
    const std::int64_t replicas = strategy[0] == 'd' ? 8 : 4;
    std::vector<Picoseconds> times;
    for (const std::int64_t samples : {15, 16, 18}) {
      const Plan plan = of(samples * replicas, strategy);
      EXPECT_EQ(plan.model->last.has_value(), samples == 16);
      times.push_back(play_plan(plan, AnalyticCost(plan.stack())).value().run.makespan);
    }
    EXPECT_LT(times[0], times[1]) << strategy;
    EXPECT_LT(times[1], times[0] + (times[2] - times[0]) * 2 / 3) << strategy;
  }
  // A last micro-batch that is as large as the others changes nothing.
  Plan plan = of(120, "dp=8,mbs=3");
  CompiledStrategy compiled = compile_plan(plan).value();
  const AnalyticCost cost(plan.stack());
  const Picoseconds alone = play_compiled(plan, plan.stack(), compiled, cost).value().run.makespan;
  compiled.last = compiled.program;
  TrainedModel with_last = *plan.model;
  with_last.last = plan.training();
  plan.model = std::make_shared<const TrainedModel>(std::move(with_last));
  EXPECT_EQ(play_compiled(plan, plan.stack(), compiled, cost).value().run.makespan, alone);
}

}  // namespace
}  // namespace weft
