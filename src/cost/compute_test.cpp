// How long operators take: published figures, laws, and every operator on every device.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "cluster/library.h"
#include "cost/analytic.h"
#include "cost/operator_cost.h"
#include "cost/product.h"
#include "cost/tuning.h"
#include "graph/operators.h"
#include "reference/operator_cases.h"

namespace weft {
namespace {

const DeviceSpec& device(std::string_view name) { return *preset_library().devices.find(name)->second; }

const AnalyticCost& model() {
  static const SoftwareStack stack = find_stack("megatron-lm").value();
  static const AnalyticCost cost(stack);
  return cost;
}

Signature signature(OpKind kind, const Attrs& attrs, std::initializer_list<TensorType> inputs) {
  return make_signature(kind, attrs, std::span(inputs.begin(), inputs.size())).value();
}
Signature linear(std::int64_t rows, std::int64_t k, std::int64_t n, DType dtype = DType::BF16) {
  return signature(OpKind::Linear, {}, {{dtype, {rows, k}}, {dtype, {k, n}, true}});
}
Signature attention(std::int64_t batch, std::int64_t length, std::int64_t heads, std::int64_t size, bool causal) {
  const TensorType tensor{DType::BF16, {batch, length, heads * size}};
  return signature(OpKind::Attention, {{"heads", heads}, {"causal", std::int64_t{causal}}}, {tensor, tensor, tensor});
}
double seconds(const Signature& op, std::string_view name, std::optional<Arithmetic> arithmetic = {}) {
  return static_cast<double>(
             model().compute({.signature = &op, .device = &device(name), .arithmetic = arithmetic}).time) *
         1e-12;
}
// `burst`: seconds of uninterrupted calls; 0: as in a step.
double tflops(const Signature& op, std::string_view name, double burst = 0) {
  KernelChoice choice = kernels_of(find_stack("megatron-lm").value());
  choice.burst = burst;
  const ComputeCost cost = operator_cost({.signature = &op, .device = &device(name)}, built_in_tuning(), choice);
  return contraction_flops(op).value / static_cast<double>(cost.time);  // FLOPs a picosecond are TFLOP/s
}

// cuBLAS on large square products, as published for each device (datasheet peaks: 989, 312, 125 TFLOP/s); Hopper as in
// measurements/h200: 731 to 774 in single calls, 660 back to back.
TEST(Compute, LargeProductsReachWhatIsPublished) {
  const Signature large = linear(8192, 8192, 8192), half = linear(8192, 8192, 8192, DType::F16);
  EXPECT_GT(tflops(large, "h100-sxm"), 600);
  EXPECT_LT(tflops(large, "h100-sxm"), 750);
  EXPECT_GT(tflops(large, "a100-80-sxm"), 230);  // the rate inside whole steps, under load
  EXPECT_LT(tflops(large, "a100-80-sxm"), 270);
  EXPECT_GT(tflops(half, "v100-32"), 80);
  EXPECT_LT(tflops(half, "v100-32"), 110);
}

// GShard: 4,096 tokens in two groups of 2,048; 16 experts take 512 rows of all of them, 16 · 512/2 = 4,096 of a group. An
// einsum with the mask is a product of (rows, tokens) and (tokens, width) in every group: 2 · 2 · 4,096 · 2,048 · 768.
TEST(Compute, DenseDispatchIsAProductWithAMask) {
  const Signature rows = signature(OpKind::Dispatch, {{"experts", std::int64_t{16}}, {"capacity", std::int64_t{512}}},
                                   {{DType::F16, {1, 4096, 768}}, {DType::I64, {1, 4096, 2}}});
  const auto cost = [&](int group) {
    KernelChoice choice;
    choice.dense_dispatch = group;
    return operator_cost({.signature = &rows, .device = &device("v100-32")}, built_in_tuning(), choice);
  };
  EXPECT_DOUBLE_EQ(cost(2048).flops, 2.0 * 2 * 4096 * 2048 * 768);
  EXPECT_DOUBLE_EQ(cost(1024).flops, cost(2048).flops / 2);  // rows of a group shrink with its tokens
  EXPECT_GT(cost(2048).time, cost(0).time);
}

// Megatron-LM's fused kernel of scale, mask and softmax: up to its limit of keys, for matrices that divide by four. Beyond,
// each is a kernel of its own; a compiler fuses them whatever the sizes.
TEST(Compute, AFusedSoftmaxHasLimits) {
  const auto time = [](std::int64_t heads, std::int64_t length, int keys) {
    const Signature softmax =
        signature(OpKind::Softmax, {{"causal", std::int64_t{1}}}, {{DType::F16, {1, heads, length, length}}});
    KernelChoice choice;
    choice.softmax_keys = keys;
    return operator_cost({.signature = &softmax, .device = &device("a100-80-sxm")}, built_in_tuning(), choice).time;
  };
  EXPECT_EQ(time(4, 2048, 2048), time(4, 2048, 4096));
  EXPECT_EQ(time(4, 2048, 2048), time(4, 2048, kAnySoftmaxKeys));
  EXPECT_GT(time(4, 4096, 2048), 2 * time(4, 4096, 4096));
  EXPECT_EQ(time(4, 4096, 2048), time(4, 4096, 0));
  EXPECT_EQ(time(3, 2048, 2048), time(3, 2048, 0));
  EXPECT_LT(time(3, 2048, kAnySoftmaxKeys), time(3, 2048, 2048));
}

// Scores of heads that lie beside one another in a row: heads of 108 fp16 elements begin at multiples of 216 bytes, off 16;
// those of 112 at 224. Rows are aligned in both: 32 heads of 108 are 6,912 bytes.
TEST(Compute, HeadsOffSixteenBytesLoseTheRateOfAlignedProducts) {
  const auto scores = [&](std::int64_t size) {
    const TensorType rows{DType::F16, {2, 2048, 32 * size}};
    return signature(OpKind::Matmul,
                     {{"notation", std::string("a[b,q,h.e] b[b,t,h.e] -> y[b,h,q,t]")}, {"axes", std::string("h=32")}},
                     {rows, rows});
  };
  const double off = tflops(scores(108), "a100-80-sxm"), on = tflops(scores(112), "a100-80-sxm");
  EXPECT_LT(off, 0.6 * on);
}

// Of an activation of m × k that was gathered of 8 parts, a device casts its eighth: (2 + 2) bytes an element, and
// transposes the whole: 1 + 1. Otherwise it casts all of it: 4 m k - (4/8 + 2) m k = 1.5 m k bytes more.
TEST(Compute, DevicesCastTheirPartOfWhatIsGathered) {
  const Signature op = linear(4096, 8192, 1024);
  const auto bytes = [&](double cast) {
    return model()
        .compute({.signature = &op, .device = &device("h100-sxm"), .arithmetic = Arithmetic::kFp8, .cast = cast})
        .bytes;
  };
  EXPECT_EQ(bytes(1) - bytes(1.0 / 8), 3 * 4096 * 8192 / 2);
}

// Measured on an A100 PCIe (SimuMax, configs/system/a100_pcie.json): TFLOP/s of 4096 × k × n.
TEST(Compute, ProductsOfTransformersAreNearThoseMeasured) {
  const struct {
    std::int64_t k, n;
    double efficiency;
  } rows[] = {{5120, 1536, 0.788},  {512, 32768, 0.618}, {12288, 5120, 0.772}, {7168, 36864, 0.760},
              {4096, 28672, 0.737}, {4096, 768, 0.765},  {8192, 8192, 0.733},  {1024, 8192, 0.602}};
  double sum = 0;
  for (const auto& row : rows) {
    const double error = tflops(linear(4096, row.k, row.n), "a100-80-pcie") / 312 / row.efficiency - 1;
    EXPECT_LT(std::abs(error), 0.15) << row.k << " × " << row.n;
    sum += std::abs(error);
  }
  EXPECT_LT(sum / 8, 0.06);
}

TEST(Compute, ALinearAndItsGradientsAreTheSameProductTurned) {
  const Signature forward = linear(4096, 2048, 8192);
  for (const Gradient& gradient : gradients_of(forward)) {
    const Signature backward = gradient_signature(forward, gradient);
    EXPECT_EQ(contraction_flops(backward), contraction_flops(forward));
    EXPECT_NEAR(seconds(backward, "h100-sxm") / seconds(forward, "h100-sxm"), 1, 0.15) << gradient.name;
  }
}

TEST(Compute, ThePartOfAnAxisCostsWhatASmallerOperatorDoes) {
  const Signature whole = linear(4096, 2048, 8192), half = linear(4096, 2048, 4096);
  std::vector<std::int64_t> local(whole.axes.size());
  for (std::size_t axis = 0; axis < local.size(); ++axis) local[axis] = whole.axes[axis].size;
  local[static_cast<std::size_t>(whole.axis_named("n"))] = 4096;
  EXPECT_EQ(model().compute({.signature = &whole, .extents = local, .device = &device("h100-sxm")}),
            model().compute({.signature = &half, .device = &device("h100-sxm")}));
}

// A wave holds one tile per compute unit: 108 tiles of 256 × 128 fill an A100, one more begins a second wave.
TEST(Compute, OneTileMoreThanAWaveCostsMoreThanItsShare) {
  const DeviceSpec& a100 = device("a100-80-sxm");
  DeviceTuning tuning = built_in_tuning().of(a100);
  ProductTuning& products = tuning.products[static_cast<std::size_t>(Arithmetic::kBf16)];
  products.tiles.value = {{256, 128, 1}};
  products.wave_quantisation.value = 1;
  tuning.kernel.value = {};
  const auto time = [&](double tiles) {
    return product_time({.m = 256, .n = 128 * tiles, .k = 512, .bytes = 1}, a100, tuning, Arithmetic::kBf16).seconds;
  };
  EXPECT_DOUBLE_EQ(time(108), time(60));
  EXPECT_DOUBLE_EQ(time(109), 2 * time(108));
}

TEST(Compute, FewTilesAreSplitAlongTheSum) {
  // 128 × 128 outputs, k = 65,536: one tile would leave 131 of 132 units idle.
  const Signature tall = linear(128, 65536, 128);
  const ComputeCost cost = model().compute({.signature = &tall, .device = &device("h100-sxm")});
  EXPECT_GT(contraction_flops(tall).value / (static_cast<double>(cost.time) * 1e-12), 989e12 * 0.72 / 132 * 8);
}

TEST(Compute, OddRowsAreSlower) {
  EXPECT_GT(seconds(linear(8192, 4096, 50257), "a100-80-sxm"), 1.3 * seconds(linear(8192, 4096, 50304), "a100-80-sxm"));
}

TEST(Compute, Fp8IsFasterThanBf16AndTf32ThanFp32) {
  const Signature bf16 = linear(8192, 8192, 8192), fp32 = linear(8192, 8192, 8192, DType::F32);
  const Signature fp8 = linear(8192, 8192, 8192, DType::F8);
  EXPECT_LT(seconds(fp8, "h100-sxm", Arithmetic::kFp8), 0.65 * seconds(bf16, "h100-sxm"));
  // A 16-bit factor adds its cast: 2 bytes read and 2 written per element.
  const double cast = seconds(bf16, "h100-sxm", Arithmetic::kFp8) - seconds(fp8, "h100-sxm", Arithmetic::kFp8);
  EXPECT_GT(cast, 4.0 * 8192 * 8192 / 3.35e12);
  EXPECT_LT(cast, 4.0 * 8192 * 8192 / (0.4 * 3.35e12));
  EXPECT_LT(seconds(fp32, "h100-sxm", Arithmetic::kTf32), 0.3 * seconds(fp32, "h100-sxm"));
}

// Hopper's products read fp8 along rows alone, so what is cast is turned too, a byte an element; Blackwell's read it either
// way where it has one scale. A maximum is found in a pass over the 16-bit tensor.
TEST(Compute, CastsReadAndWriteWhatTheirRecipeSays) {
  const Signature bf16 = linear(8192, 8192, 8192);
  const auto bytes = [&](std::string_view name, Recipe recipe) {
    KernelChoice choice = kernels_of(find_stack("megatron-lm").value());
    choice.recipe = recipe;
    return operator_cost({.signature = &bf16, .device = &device(name), .arithmetic = Arithmetic::kFp8},
                         built_in_tuning(), choice)
        .bytes;
  };
  constexpr std::int64_t kElements = 8192 * 8192;
  EXPECT_EQ(bytes("h100-sxm", Recipe::Delayed) - bytes("b200", Recipe::Delayed), kElements);
  EXPECT_EQ(bytes("h100-sxm", Recipe::Mx), bytes("b200", Recipe::Mx));
  EXPECT_EQ(bytes("h100-sxm", Recipe::Current) - bytes("h100-sxm", Recipe::Delayed), 2 * kElements);
  EXPECT_EQ(bytes("h100-sxm", Recipe::Blockwise) - bytes("h100-sxm", Recipe::Delayed), 2 * 4 * kElements / 128);
}

// Reads 1 GiB and writes 1 GiB at 87.3 % of 2,039 GB/s: 1.21 ms, and the kernel's own 3 us.
TEST(Compute, AnActivationTakesItsBytesOverTheBandwidth) {
  const Signature relu = signature(OpKind::Unary, {{"fn", std::string("relu")}}, {{DType::BF16, {1 << 29}}});
  EXPECT_NEAR(seconds(relu, "a100-80-sxm"), 2.0 * (1 << 30) / (0.873 * 2039e9) + 3e-6, 1e-9);
  const ComputeCost cost = model().compute({.signature = &relu, .device = &device("a100-80-sxm")});
  EXPECT_EQ(cost.bytes, std::int64_t{2} << 30);
  EXPECT_NEAR(cost.memory_share / static_cast<double>(kOne), 0.873, 0.01);
  // Three quarters of the units keep memory busy.
  EXPECT_NEAR(cost.sm_share / static_cast<double>(kOne), 0.78, 0.01);
}

TEST(Compute, ATinyKernelTakesTheKernelsOwnTime) {
  const Signature relu = signature(OpKind::Unary, {{"fn", std::string("relu")}}, {{DType::BF16, {8}}});
  EXPECT_NEAR(seconds(relu, "a100-80-sxm"), 3e-6, 1e-9);
}

// Half of the pairs are seen; blocks on the diagonal are computed whole and the last blocks end late. Measured on the
// H200 at 8,192 tokens, 32 heads of 128: 911 us of 1,616 us, 0.56.
TEST(Compute, CausalAttentionTakesLittleMoreThanHalf) {
  const auto share = [](std::int64_t length) {
    return seconds(attention(1, length, 32, 128, true), "h200") / seconds(attention(1, length, 32, 128, false), "h200");
  };
  EXPECT_NEAR(share(8192), 0.56, 0.02);
  EXPECT_GT(share(65536), 0.5);
  EXPECT_LT(share(65536), share(8192));
  EXPECT_LT(share(8192), share(1024));
}

// FlashAttention-2 (Dao, 2023), A100, heads of 128, 8k: about 200 TFLOP/s forward; FlashAttention-3, H100: 550 to 650,
// both in single calls. In whole steps the clock of an H100 is lower.
TEST(Compute, FusedAttentionReachesWhatIsPublished) {
  EXPECT_NEAR(tflops(attention(2, 8192, 16, 128, false), "a100-80-sxm", 1e-3), 195, 20);
  EXPECT_NEAR(tflops(attention(2, 8192, 16, 128, false), "h100-sxm", 1e-3), 600, 70);
}

TEST(Compute, PlainAttentionPassesItsScoresThroughMemory) {
  const AnalyticCost plain(find_stack("megatron-deepspeed").value());
  const Signature op = attention(8, 2048, 16, 128, true);
  const ComputeQuery query{.signature = &op, .device = &device("a100-80-sxm")};
  EXPECT_GT(plain.compute(query).bytes, 4 * 8 * 16 * 2048LL * 2048 * 2);
  EXPECT_GT(plain.compute(query).time, 2 * model().compute(query).time);
}

TEST(AttendedShare, IsHalfOfTheTriangleAndGrowsAlongTheQueries) {
  const Signature op = attention(1, 4, 1, 8, true);
  // Keys seen by queries 0 … 3: 1 + 2 + 3 + 4 = 10 of 16.
  EXPECT_DOUBLE_EQ(attended_share(op), 10.0 / 16);
  AxisSlices slices = whole_axes(op);
  AxisSlice &q = slices[static_cast<std::size_t>(op.axis_named("q"))],
            &t = slices[static_cast<std::size_t>(op.axis_named("t"))];
  q = {1, 0, 2};
  EXPECT_DOUBLE_EQ(attended_share(op, slices), 3.0 / 8);
  q = {1, 2, 4};
  EXPECT_DOUBLE_EQ(attended_share(op, slices), 7.0 / 8);
  t = {1, 2, 4};  // query 2 sees key 2, query 3 keys 2 and 3
  EXPECT_DOUBLE_EQ(attended_share(op, slices), 3.0 / 4);
  q = {1, 0, 2};
  EXPECT_DOUBLE_EQ(attended_share(op, slices), 0);
}

TEST(AttendedShare, OfAWindowIsItsWidth) {
  const TensorType tensor{DType::BF16, {1, 8, 8}};
  const Signature op =
      signature(OpKind::Attention, {{"heads", 1}, {"causal", 1}, {"window", 2}}, {tensor, tensor, tensor});
  EXPECT_DOUBLE_EQ(attended_share(op), (1 + 7 * 2.0) / 64);
  // Keys in two halves: queries 0 … 3 see 7 pairs of the first; 4 … 7 one pair of it, key 3 from query 4, and 7 of the
  // second.
  AxisSlices slices = whole_axes(op);
  AxisSlice &q = slices[static_cast<std::size_t>(op.axis_named("q"))],
            &t = slices[static_cast<std::size_t>(op.axis_named("t"))];
  const auto seen = [&](AxisSlice queries, AxisSlice keys) {
    q = queries;
    t = keys;
    return attended_share(op, slices) * 16;
  };
  EXPECT_DOUBLE_EQ(seen({1, 0, 4}, {1, 0, 4}), 7);
  EXPECT_DOUBLE_EQ(seen({1, 0, 4}, {1, 4, 8}), 0);
  EXPECT_DOUBLE_EQ(seen({1, 4, 8}, {1, 0, 4}), 1);
  EXPECT_DOUBLE_EQ(seen({1, 4, 8}, {1, 4, 8}), 7);
}

TEST(Compute, AttentionThatSeesNothingTakesNoTime) {
  const Signature op = attention(1, 4096, 8, 128, true);
  ComputeQuery query{.signature = &op, .device = &device("h100-sxm"), .attended = 0};
  EXPECT_EQ(model().compute(query).time, 0);
  query.attended = 1e-6;
  EXPECT_GT(model().compute(query).time, 0);
}

// 50,000 rows of 8 KiB looked up and written; the 400 MiB table is not read as a whole.
TEST(Compute, AnEmbeddingReadsTheRowsItLooksUp) {
  const Signature op = signature(OpKind::Embedding, {}, {{DType::I64, {1, 1000}}, {DType::BF16, {50000, 4096}, true}});
  EXPECT_EQ(model().compute({.signature = &op, .device = &device("h100-sxm")}).bytes, 1000 * (8 + 2 * 8192));
}

// ResNet-50's first convolution, batch 128: 2·128·112²·64·3·49 = 30.2 GFLOP.
TEST(Compute, AConvolutionIsAnImplicitProduct) {
  const Signature op = signature(OpKind::Conv2d, {{"stride", Shape{2, 2}}, {"pad", Shape{3, 3}}},
                                 {{DType::F16, {128, 3, 224, 224}}, {DType::F16, {64, 3, 7, 7}, true}});
  const ComputeCost cost = model().compute({.signature = &op, .device = &device("v100-16")});
  EXPECT_NEAR(cost.flops, 30.2e9, 0.1e9);
  EXPECT_GT(static_cast<double>(cost.time) * 1e-12, 30.2e9 / 125e12);
  for (const Gradient& gradient : gradients_of(op)) {
    const Signature backward = gradient_signature(op, gradient);
    EXPECT_NEAR(model().compute({.signature = &backward, .device = &device("v100-16")}).flops, cost.flops, 1);
  }
}

Signature windows_of_three(std::int64_t images, std::int64_t in, std::int64_t out, std::int64_t side) {
  return signature(OpKind::Conv2d, {{"stride", Shape{1, 1}}, {"pad", Shape{1, 1}}},
                   {{DType::F32, {images, in, side, side}}, {DType::F32, {out, in, 3, 3}, true}});
}

// Factors of 36 elements for each of 32·14² tiles of 256 and 512 channels, and for each window: read by the products,
// written and read by the transforms, which pass the operands through memory too.
TEST(Compute, WinogradsTransformsTakeTheirBytes) {
  const Signature op = windows_of_three(32, 256, 512, 56);
  const auto time = [&](double images, double windows) {
    const Tuning tuning = parse_tuning(fmt::format("sources: {{t: test}}\n"
                                                   "devices: {{v100-32: {{passes: {{transform: [{{share: {}}}, t], "
                                                   "transform_windows: [{{share: {}}}, t]}}}}}}\n",
                                                   images, windows),
                                       "t.yaml")
                              .value();
    const AnalyticCost cost(find_stack("megatron-lm").value(), tuning);
    return static_cast<double>(cost.compute({.signature = &op, .device = &device("v100-32")}).time) * 1e-12;
  };
  const double tiles = 32 * 14 * 14, pixels = 32 * 56 * 56, bandwidth = 900e9;
  const double of_images = 4 * (36 * tiles + pixels) * (256 + 512), of_windows = 4 * (36 + 9) * 256 * 512;
  EXPECT_NEAR(time(0.5, 0.5) - time(1, 0.5), of_images / bandwidth, 1e-9);
  EXPECT_NEAR(time(1, 0.25) - time(1, 0.5), 2 * of_windows / bandwidth, 1e-9);
}

// Tiles of 32 columns: 16 output channels of Winograd's products are not padded to four times as many columns.
TEST(Compute, WinogradOfFewChannelsRunsInNarrowTiles) {
  for (const char* name : {"a100-80-pcie", "v100-32", "t4", "p100-pcie"})
    EXPECT_LT(seconds(windows_of_three(32, 256, 16, 56), name), 0.6 * seconds(windows_of_three(32, 256, 128, 56), name))
        << name;
}

// AdamW over one billion parameters: weight, gradient, master and two moments; 2+2+4+4+4 read, 2+4+4+4 written.
TEST(Compute, AnOptimizerStepTakesItsBytes) {
  const std::int64_t n = 1'000'000'000;
  const Signature op = signature(OpKind::Adam, {{"master", 1}},
                                 {{DType::BF16, {n}, true},
                                  {DType::BF16, {n}},
                                  {DType::F32, {n}},
                                  {DType::F32, {n}},
                                  {DType::F32, {n}},
                                  {DType::F32, {}},
                                  {DType::F32, {}}});
  const ComputeCost cost = model().compute({.signature = &op, .device = &device("h100-sxm")});
  EXPECT_EQ(cost.bytes, 30 * n + 2 * 4);  // and the learning rate and the number of the step
  EXPECT_NEAR(static_cast<double>(cost.time) * 1e-12, 30e9 / (0.742 * 3.35e12), 1e-5);
}

// What measurements/h200/steps_kernels.csv has of gpt2-355m in bf16, batches of 16: log_softmax, nll_loss and their
// gradients 3.17 ms; a product of its blocks takes 0.200 ms alone (operators.csv), and back to back 0.228 ms.
TEST(Compute, EagerKernelsTakeWhatWasMeasuredOfThem) {
  const AnalyticCost eager(find_stack("pytorch-bf16").value());
  const auto ms = [&](const Signature& op) {
    return static_cast<double>(eager.compute({.signature = &op, .device = &device("h200")}).time) * 1e-9;
  };
  const Signature loss =
      signature(OpKind::CrossEntropy, {}, {{DType::BF16, {16, 1024, 50257}}, {DType::I64, {16, 1024}}});
  const Signature gradient = gradient_signature(loss, gradients_of(loss).front());
  EXPECT_NEAR((ms(loss) + ms(gradient)) / 3.17, 1, 0.1);
  EXPECT_NEAR(ms(linear(16384, 1024, 4096)) / 0.200, 1, 0.05);
}

TEST(Compute, PassesBetweenProductsLetTheClockRecover) {
  const AnalyticCost eager(find_stack("pytorch-bf16").value()),
      steady(find_stack("pytorch-bf16:passes_between=0").value());
  const auto gain = [&](const Signature& op, std::string_view name) {
    const ComputeQuery query{.signature = &op, .device = &device(name)};
    return static_cast<double>(steady.compute(query).time) / static_cast<double>(eager.compute(query).time);
  };
  const double most = 1 / built_in_tuning().of(device("h200")).load_clock.value;
  EXPECT_NEAR(gain(linear(16384, 1024, 16384), "h200"), most, 0.02);
  EXPECT_LT(gain(linear(16384, 16384, 16384), "h200"), 1.02);
  EXPECT_EQ(gain(linear(16384, 1024, 16384), "a100-80-sxm"), 1);  // no clock under load is known
}

// apex and PyTorch update many tensors by one kernel; a loop over them starts one each.
TEST(Compute, FusedUpdatesShareTheirKernels) {
  const Signature op = signature(OpKind::Adam, {},
                                 {{DType::F32, {64}, true},
                                  {DType::F32, {64}},
                                  {DType::F32, {64}},
                                  {DType::F32, {64}},
                                  {DType::F32, {}},
                                  {DType::F32, {}}});
  const AnalyticCost fused(find_stack("pytorch-ddp").value()), loop(find_stack("pytorch-ddp-1.13").value());
  const ComputeQuery query{.signature = &op, .device = &device("h200")};
  EXPECT_LT(fused.compute(query).time, loop.compute(query).time / 8);
}

TEST(Compute, AViewTakesNoTime) {
  const Signature op = signature(OpKind::Reshape, {{"shape", Shape{8, 4}}}, {{DType::F32, {4, 8}}});
  EXPECT_EQ(model().compute({.signature = &op, .device = &device("h100-sxm")}), ComputeCost{});
}

// The user declares the FLOPs of an opaque operator: 1 TFLOP at 989.4 TFLOP/s is 1.01 ms.
TEST(Compute, AnOpaqueOperatorTakesTheArithmeticItIsGiven) {
  const Signature op =
      signature(OpKind::Opaque, {{"outputs", std::string("bf16[8]")}, {"flops", 1e12}}, {{DType::BF16, {8}}});
  EXPECT_NEAR(seconds(op, "h100-sxm"), 1e12 / 989.4e12, 5e-6);
}

// Every operator, forward and every backward product, on every device, with whole and halved axes.
TEST(Compute, EveryOperatorHasAFiniteCostOnEveryDevice) {
  const SoftwareStack stacks[] = {find_stack("megatron-lm").value(), find_stack("megatron-2020").value()};
  const AnalyticCost models[] = {AnalyticCost(stacks[0]), AnalyticCost(stacks[1])};
  std::vector<bool> seen(kOpKinds, false);
  Rng rng(7);
  for (const auto& generator : reference::operator_cases()) {
    const reference::OperatorCase drawn = generator.make(rng);
    std::vector<TensorType> inputs;
    for (const auto& input : drawn.inputs) inputs.push_back({DType::F32, input.shape});
    const Result<Signature> forward = make_signature(drawn.kind, drawn.attrs, inputs);
    ASSERT_TRUE(forward.ok()) << forward.error().message;
    std::vector<Signature> all = {*forward};
    for (const Gradient& gradient : gradients_of(*forward))
      if (!gradient.name.empty()) all.push_back(gradient_signature(*forward, gradient));
    seen[static_cast<std::size_t>(drawn.kind)] = true;
    for (const Signature& op : all) {
      std::vector<std::int64_t> halves;
      for (const Axis& axis : op.axes) halves.push_back(std::max<std::int64_t>(1, axis.size / 2));
      for (const auto& [name, spec] : preset_library().devices)
        for (std::size_t which = 0; which < std::size(models); ++which) {
          const AnalyticCost& cost_model = models[which];
          const ComputeCost cost = cost_model.compute({.signature = &op, .device = spec.get()});
          const ComputeCost half = cost_model.compute({.signature = &op, .extents = halves, .device = spec.get()});
          EXPECT_LE(half.time, cost.time + cost.time / 4) << generator.name << ' ' << op.gradient << " on " << name;
          // Biases and routing weights are fused with a neighbour's kernel, and accumulation with the product that
          // makes the gradient.
          const bool fused = op.kind == OpKind::Bias ||
                             (op.kind == OpKind::Accumulate && stacks[which].fused_accumulation.value) ||
                             (op.kind == OpKind::WeighRows && stacks[which].fused_bias_activation.value);
          const bool free = bytes_read(op).value == 0 || fused;
          EXPECT_TRUE(cost.time > 0 || free) << generator.name << ' ' << op.gradient << " on " << name;
          EXPECT_LT(cost.time, Picoseconds{1} << 50) << generator.name << ' ' << op.gradient << " on " << name;
          EXPECT_GE(cost.flops, 0);
          EXPECT_GE(cost.bytes, 0);
          EXPECT_TRUE(cost.sm_share >= 0 && cost.sm_share <= kOne && cost.memory_share >= 0 &&
                      cost.memory_share <= kOne);
        }
    }
  }
  for (int kind = 0; kind < static_cast<int>(OpKind::Opaque); ++kind)
    EXPECT_TRUE(seen[static_cast<std::size_t>(kind)]) << name_of(static_cast<OpKind>(kind));
}

RC_GTEST_PROP(ComputeLaws, MoreBytesNeverTakeLessTime, ()) {
  const std::int64_t n = *rc::gen::inRange<std::int64_t>(1, 1 << 24),
                     more = *rc::gen::inRange<std::int64_t>(0, 1 << 24);
  const std::string name = *rc::gen::element<std::string>("h100-sxm", "v100-16", "mi300x", "cpu-core");
  const auto time = [&](std::int64_t size) {
    const Signature op =
        signature(OpKind::Binary, {{"fn", std::string("add")}}, {{DType::BF16, {size}}, {DType::BF16, {size}}});
    return model().compute({.signature = &op, .device = &device(name)}).time;
  };
  RC_ASSERT(time(n + more) >= time(n));
}

RC_GTEST_PROP(ComputeLaws, LessBandwidthAndLowerPeaksAreNeverFaster, ()) {
  DeviceSpec slow = device("h100-sxm");
  const double factor = *rc::gen::inRange(1, 100) / 100.0;
  slow.memory_bandwidth.value.value *= factor;
  for (auto& peak : slow.peaks)
    if (peak) peak->value.value *= factor;
  const auto size = [] { return *rc::gen::inRange<std::int64_t>(1, 5000); };
  const Signature op = linear(size(), size(), size());
  RC_ASSERT(model().compute({.signature = &op, .device = &slow}).time >=
            model().compute({.signature = &op, .device = &device("h100-sxm")}).time);
}

// Along whole tiles a larger product is never faster; within a tile it costs the same.
RC_GTEST_PROP(ComputeLaws, AProductNeverBeatsThePeakOrItsMemory, ()) {
  const auto size = [] { return *rc::gen::inRange<std::int64_t>(1, 20000); };
  const Signature op = linear(size(), size(), size());
  const double time = seconds(op, "a100-80-sxm");
  RC_ASSERT(time >= contraction_flops(op).value / 312e12);
  RC_ASSERT(time >= static_cast<double>(bytes_read(op).value + bytes_written(op).value) / 2039e9);
}

}  // namespace
}  // namespace weft
