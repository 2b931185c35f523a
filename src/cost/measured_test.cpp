#include "cost/measured.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "graph/operators.h"

namespace weft {
namespace {

using testing::HasSubstr;

MeasuredEvent product(std::int64_t rows, double seconds, std::string direction = "forward") {
  return {{.device = "NVIDIA H200",
           .op = "linear",
           .variant = "cublas",
           .cache = "cold",
           .attributes = "{transposed=1}",
           .shapes = fmt::format("bf16[{},1024] bf16[4096,1024]", rows),
           .dtype = "bf16",
           .direction = std::move(direction)},
          {{seconds, seconds / 50, 10, "2026-11-15", ""}}};
}

class Measured : public testing::Test {
 protected:
  std::unique_ptr<MeasuredCost> model(const std::vector<MeasuredEvent>& profile) const {
    Result<std::unique_ptr<MeasuredCost>> made = MeasuredCost::make(profile, "p.db", cluster_, stack_);
    WEFT_CHECK(made.ok(), "{}", made.error().message);
    return std::move(made).value();
  }
  ComputeCost linear(const CostModel& cost, Shape rows, DType dtype = DType::BF16) const {
    rows.push_back(1024);
    const Signature signature =
        make_signature(OpKind::Linear, {}, std::vector<TensorType>{{dtype, rows}, {dtype, {1024, 4096}, true}}).value();
    return cost.compute(ComputeQuery{.signature = &signature, .device = &cluster_.spec(DeviceId(0))});
  }
  double alone(std::int64_t rows) const { return seconds(linear(analytic_, {rows})); }
  static double seconds(const ComputeCost& cost) { return static_cast<double>(cost.time) * 1e-12; }

  const Cluster cluster_ = parse_cluster("dgx-h200:4").value();
  const SoftwareStack stack_ = find_stack("megatron-lm").value();
  const AnalyticCost analytic_{stack_};
};

TEST_F(Measured, AnEventThatWasMeasuredTakesItsTimeHoweverItsRowsAreArranged) {
  const auto cost = model({product(4096, 1e-3)});
  for (const Shape& rows : {Shape{4096}, Shape{2, 2048}, Shape{4, 2, 512}}) {
    const ComputeCost found = linear(*cost, rows);
    EXPECT_EQ(found.time, 1'000'000'000) << rows.size();
    EXPECT_EQ(found.evidence.origin, Origin::Measured);
    EXPECT_NEAR(found.evidence.spread, std::sqrt(0.02 * 0.02 + 0.02 * 0.02), 1e-6);  // the sample's, and repetition
    EXPECT_EQ(found.flops, 2.0 * 4096 * 1024 * 4096);
  }
  EXPECT_EQ(cost->operators(), 1);
}

TEST_F(Measured, BetweenMeasuredShapesTheRatioIsInterpolatedOverTheLogarithmOfTheSize) {
  const auto cost = model({product(1024, 2 * alone(1024)), product(16384, 8 * alone(16384))});
  const ComputeCost found = linear(*cost, {4096});  // half of the way: the ratio is √(2·8) = 4
  EXPECT_EQ(found.evidence.origin, Origin::Interpolated);
  EXPECT_NEAR(seconds(found) / alone(4096), 4, 1e-6);
}

TEST_F(Measured, BeyondThemTheNearestRatioScalesTheAnalyticTime) {
  const auto cost = model({product(1024, 2 * alone(1024)), product(2048, 3 * alone(2048))});
  const ComputeCost above = linear(*cost, {8192}), below = linear(*cost, {64});
  EXPECT_EQ(above.evidence.origin, Origin::Scaled);
  EXPECT_NEAR(seconds(above) / alone(8192), 3, 1e-6);
  EXPECT_NEAR(seconds(below) / alone(64), 2, 1e-6);
  EXPECT_GT(above.evidence.spread, 0);
  // Another element type is scaled by the same operator's ratio.
  const ComputeCost other = linear(*cost, {2048}, DType::F16);
  EXPECT_EQ(other.evidence.origin, Origin::Scaled);
  EXPECT_NEAR(seconds(other) / seconds(linear(analytic_, {2048}, DType::F16)), 3, 1e-6);
}

TEST_F(Measured, WhatWasNotMeasuredAtAllIsTheModels) {
  const auto cost = model({product(1024, 2 * alone(1024)), product(2048, 3 * alone(2048))});
  const Signature norm =
      make_signature(OpKind::LayerNorm, {},
                     std::vector<TensorType>{{DType::BF16, {64, 512}}, {DType::BF16, {512}}, {DType::BF16, {512}}})
          .value();
  const ComputeQuery query{.signature = &norm, .device = &cluster_.spec(DeviceId(0))};
  EXPECT_EQ(cost->compute(query).time, analytic_.compute(query).time);
  EXPECT_EQ(cost->compute(query).evidence.origin, Origin::Model);
  EXPECT_GT(cost->compute(query).evidence.spread, 0);  // the error of the model on the measured points
}

// Some different shapes of three axes, with ratios of measured to analytic time.
std::vector<MeasuredPoint> some_points() {
  const auto size = rc::gen::inRange<std::int64_t>(1, 4096);
  const auto sizes = *rc::gen::suchThat(
      rc::gen::unique<std::vector<std::vector<std::int64_t>>>(rc::gen::container<std::vector<std::int64_t>>(3, size)),
      [](const auto& all) { return !all.empty(); });
  std::vector<MeasuredPoint> points;
  for (const std::vector<std::int64_t>& each : sizes)
    points.push_back({each, std::exp2(*rc::gen::inRange(-200, 200) / 100.0), 0.01, 1e-3});
  return points;
}

RC_GTEST_PROP(MeasuredPoints, AMeasuredShapeHasItsOwnRatio, ()) {
  const std::vector<MeasuredPoint> points = some_points();
  const FamilyPoints family(points);
  for (const MeasuredPoint& point : points) {
    const Correction found = family.at(point.sizes);
    RC_ASSERT(found.ratio == point.ratio);
    RC_ASSERT(found.evidence.origin == Origin::Measured);
  }
}

RC_GTEST_PROP(MeasuredPoints, AnyOtherShapeHasOneBetweenThoseMeasured, ()) {
  const std::vector<MeasuredPoint> points = some_points();
  const auto shape = *rc::gen::container<std::vector<std::int64_t>>(3, rc::gen::inRange<std::int64_t>(1, 1 << 16));
  const auto [least, most] = std::minmax_element(
      points.begin(), points.end(), [](const MeasuredPoint& a, const MeasuredPoint& b) { return a.ratio < b.ratio; });
  const double found = FamilyPoints(points).at(shape).ratio;
  RC_ASSERT(found >= least->ratio * (1 - 1e-9));
  RC_ASSERT(found <= most->ratio * (1 + 1e-9));
}

TEST_F(Measured, TheStackChoosesAmongMeasuredKernels) {
  const auto attention = [&](const char* variant, double time) {
    return MeasuredEvent{{.device = "NVIDIA H200",
                          .op = "attention",
                          .variant = variant,
                          .cache = "cold",
                          .attributes = "{causal=1, heads=16}",
                          .shapes = "bf16[4,1024,1024] bf16[4,1024,1024] bf16[4,1024,1024]",
                          .dtype = "bf16",
                          .direction = "forward"},
                         {{time, 0, 10, "", ""}}};
  };
  const std::vector<MeasuredEvent> profile = {attention("flash", 1e-3), attention("cudnn", 2e-3),
                                              attention("unfused", 3e-3)};
  const TensorType heads{DType::BF16, {4, 1024, 1024}};
  const Signature signature =
      make_signature(OpKind::Attention, {{"causal", 1}, {"heads", 16}}, std::vector{heads, heads, heads}).value();
  SoftwareStack stack = stack_;
  const auto time = [&] {
    const auto cost = MeasuredCost::make(profile, "p.db", cluster_, stack).value();
    return cost->compute(ComputeQuery{.signature = &signature, .device = &cluster_.spec(DeviceId(0))}).time;
  };
  stack.attention_generation.value = 3;
  EXPECT_EQ(time(), 2'000'000'000);
  stack.attention_generation.value = 2;
  EXPECT_EQ(time(), 1'000'000'000);
  stack.fused_attention.value = false;
  EXPECT_EQ(time(), 3'000'000'000);
}

TEST_F(Measured, LargeProductsAreSlowerUnderLoadByWhatWasMeasuredBackToBack) {
  MeasuredEvent loaded = product(8192, 1.2 * 2 * alone(8192));
  loaded.event.variant = "back_to_back";
  const auto cost = model({product(8192, 2 * alone(8192)), product(64, 2 * alone(64)), loaded});
  EXPECT_NEAR(seconds(linear(*cost, {8192})) / alone(8192), 2.4, 1e-6);
  EXPECT_NEAR(seconds(linear(*cost, {64})) / alone(64), 2, 1e-6);  // shorter than what was measured under load
}

TEST_F(Measured, AProfileOfOtherDevicesIsAnError) {
  MeasuredEvent other = product(1024, 1e-3);
  other.event.device = "NVIDIA A100-SXM4-80GB";
  const auto made = MeasuredCost::make(std::vector{other}, "p.db", cluster_, stack_);
  EXPECT_THAT(made.error().message, HasSubstr("p.db: no events of h200; it has those of NVIDIA A100-SXM4-80GB"));
}

TEST(MeasuredDevices, DriversNamesMeanTheirDevices) {
  const auto spec = [](const char* cluster) { return parse_cluster(cluster)->spec(DeviceId(0)); };
  EXPECT_TRUE(is_device("NVIDIA H200", spec("dgx-h200:1")));
  EXPECT_TRUE(is_device("NVIDIA H100 80GB HBM3", spec("dgx-h100:1")));
  EXPECT_FALSE(is_device("NVIDIA H100 PCIe", spec("dgx-h100:1")));
  EXPECT_FALSE(is_device("NVIDIA H200", spec("dgx-h100:1")));
  EXPECT_TRUE(is_device("NVIDIA A100-SXM4-80GB", spec("dgx-a100:1")));
}

// Collectives.

MeasuredEvent reduce(std::int64_t members, std::int64_t nodes, std::int64_t bytes, double seconds) {
  return {{.device = "h200",
           .op = "all-reduce",
           .bytes = bytes,
           .members = members,
           .nodes = nodes,
           .most_per_node = members / nodes},
          {{seconds, seconds / 100, 10, "", ""}}};
}

class MeasuredGroup : public Measured {
 protected:
  CommunicateCost all_reduce(const CostModel& cost, std::size_t members, std::int64_t bytes) const {
    std::vector<DeviceId> devices;
    for (std::size_t i = 0; i < members; ++i) devices.emplace_back(i);
    const Communicator group = make_communicator(cluster_, devices, Collective::AllReduce);
    return cost.communicate(CommunicateQuery{&group, bytes});
  }
};

TEST_F(MeasuredGroup, AMeasuredGroupTakesItsTimeAndInterpolatesOverBytes) {
  const auto cost = model({reduce(8, 1, 1 << 20, 1e-4), reduce(8, 1, 1 << 24, 16e-4)});
  const CommunicateCost exact = all_reduce(*cost, 8, 1 << 20), between = all_reduce(*cost, 8, 1 << 22);
  EXPECT_EQ(isolated_time(exact), 100'000'000);
  EXPECT_EQ(exact.evidence.origin, Origin::Measured);
  EXPECT_NEAR(static_cast<double>(isolated_time(between)), 4e8, 1e3);  // √(1e-4 · 16e-4)
  EXPECT_EQ(between.evidence.origin, Origin::Interpolated);
  EXPECT_EQ(cost->communications(), 2);
}

// time = 10 us + 1 us per step inside + 3 us per step between + volume / 200 (inside) or 40 GB/s (between)
double truth(std::int64_t members, std::int64_t nodes, std::int64_t bytes) {
  const double volume =
      2.0 * static_cast<double>(members - 1) / static_cast<double>(members) * static_cast<double>(bytes);
  const double steps = 2.0 * static_cast<double>(members / nodes - 1);
  return 10e-6 + steps * 1e-6 + (nodes > 1 ? 2 * std::log2(nodes) * 3e-6 + volume / 40e9 : volume / 200e9);
}

TEST_F(MeasuredGroup, LargerGroupsFollowFromTheFitWithLessConfidence) {
  std::vector<MeasuredEvent> profile;
  for (const auto& [members, nodes] : {std::pair{2, 1}, {4, 1}, {8, 1}, {4, 2}, {8, 2}, {16, 2}})
    for (std::int64_t bytes = 1 << 12; bytes <= 1 << 28; bytes *= 4)
      profile.push_back(reduce(members, nodes, bytes, truth(members, nodes, bytes)));
  const auto cost = model(profile);
  for (std::int64_t bytes : {std::int64_t{1} << 14, std::int64_t{1} << 26}) {
    const CommunicateCost large = all_reduce(*cost, 32, bytes), known = all_reduce(*cost, 16, bytes);
    EXPECT_EQ(large.evidence.origin, Origin::Extrapolated);
    EXPECT_NEAR(static_cast<double>(isolated_time(large)) * 1e-12 / truth(32, 4, bytes), 1, 0.02) << bytes;
    EXPECT_EQ(known.evidence.origin, Origin::Measured);
    EXPECT_GT(large.evidence.spread, known.evidence.spread + 0.05F);
    EXPECT_EQ(all_reduce(*cost, 6, bytes).evidence.origin, Origin::Interpolated);
  }
  // No all-gather was measured.
  std::vector<DeviceId> devices = {DeviceId(0), DeviceId(1)};
  const Communicator gather = make_communicator(cluster_, devices, Collective::AllGather);
  EXPECT_EQ(cost->communicate(CommunicateQuery{&gather, 1 << 20}).evidence.origin, Origin::Model);
}

RC_GTEST_FIXTURE_PROP(MeasuredGroup, TheEngineTakesWhatWasMeasured, ()) {
  const std::int64_t bytes = *rc::gen::inRange<std::int64_t>(1, 1 << 28);
  const double time = 1e-6 * *rc::gen::inRange(1, 100000);
  const auto members = *rc::gen::element<std::size_t>(2, 4, 8);
  const auto cost = model({reduce(static_cast<std::int64_t>(members), 1, bytes, time)});
  const CommunicateCost found = all_reduce(*cost, members, bytes);
  // As measured, unless the links' nominal bandwidth does not allow it.
  const auto wanted = static_cast<Picoseconds>(time * 1e12 + 0.5);
  RC_ASSERT(isolated_time(found) >= wanted);
  if (found.latency > 0) RC_ASSERT(isolated_time(found) - wanted <= 1);
}

}  // namespace
}  // namespace weft
