// Closed forms through the whole chain — plan, compile, price, simulate — with equal stages and free communication.
#include <gtest/gtest.h>

#include <algorithm>

#include "forecast/forecast.h"

namespace weft {
namespace {

constexpr Picoseconds kF = 3'000'000'000, kB = 5'000'000'000, kW = 2'000'000'000;

// Only three operators of each layer take time: attention, its gradient, and the weight gradient of the second
// product of the MLP (of 4h inputs). Everything between devices takes a picosecond.
class EqualLayers final : public CostModel {
 public:
  explicit EqualLayers(std::int64_t width) : width_(width) {}
  void compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const override {
    for (std::size_t i = 0; i < queries.size(); ++i) {
      const Signature& signature = *queries[i].signature;
      costs[i] = {};
      if (signature.kind == OpKind::Attention) costs[i].time = signature.gradient.empty() ? kF : kB;
      const int k = signature.axis_named("k");
      if (signature.kind == OpKind::Linear && signature.gradient == "grad_weight" && k >= 0 &&
          signature.axes[static_cast<std::size_t>(k)].size == 4 * width_)
        costs[i].time = kW;
    }
  }
  void communicate(std::span<const CommunicateQuery>, std::span<CommunicateCost> costs) const override {
    for (CommunicateCost& cost : costs) cost = {.latency = 1};
  }
  std::int64_t capacity(const Link&) const override { return 1'000'000'000'000; }
  Interference interference(const DeviceSpec&) const override { return {}; }

 private:
  std::int64_t width_;
};

struct Bubbles {
  double share = 0;      // of the step, on the first rank
  Picoseconds idle = 0;  // most idle time of a rank from its first computation to its last
  Picoseconds step = 0;
};

Bubbles bubbles_of(const std::string& strategy) {
  Plan plan =
      make_plan({.model = "gpt2-124m:layers=8", .cluster = "dgx-a100:1", .strategy = strategy, .seq = 256}).value();
  SoftwareStack stack = plan.stack();
  stack.graph_capture.value = true;  // no host
  plan = with_stack(std::move(plan), std::move(stack));
  const PlayedPlan played = play_plan(plan, EqualLayers(768), {.record = true}).value();
  const Timeline timeline(played.priced.workload, played.run);
  const IdVec<InstructionId, Activity> activities = activities_of(played.compiled.program, plan.training().graph);
  Bubbles found;
  found.step = played.run.makespan;
  for (AgentId agent : played.priced.agents.ids()) {
    Picoseconds first = kTimeLimit, last = 0, busy = 0;
    timeline.for_each(agent, [&](const Span& span) {
      if (communicates(activities[InstructionId(span.instruction)])) return;
      if (span.start == span.end) return;
      first = std::min(first, span.start);
      last = std::max(last, span.end);
      busy += span.end - span.start;
    });
    found.idle = std::max(found.idle, last - first - busy);
  }
  const StepBreakdown breakdown = break_down_step(timeline, AgentId(0), activities, played.compiled.program);
  found.share = 1 - static_cast<double>(breakdown[Activity::Compute]) / static_cast<double>(found.step);
  return found;
}

constexpr double kClose = 1e-6;  // transfers are not quite free: a picosecond each

TEST(Bubble, GpipeAndOneForwardOneBackward) {
  for (const std::string schedule : {"gpipe", "1f1b"})
    for (const int m : {4, 8, 16}) {
      // p = 4: (p−1)/(m+p−1)
      const Bubbles found = bubbles_of("pp=4,dp=2,ga=" + std::to_string(m) + ",schedule=" + schedule);
      EXPECT_NEAR(found.share, 3.0 / (m + 3), kClose) << schedule << " " << m;
      // Two layers a stage: (m+p−1)(F+B+W).
      EXPECT_NEAR(static_cast<double>(found.step) / static_cast<double>((m + 3) * 2 * (kF + kB + kW)), 1, kClose);
    }
}

TEST(Bubble, Interleaved) {
  for (const int m : {4, 8, 16}) {
    // p = 4, v = 2: (p−1)/(v·m+p−1)
    EXPECT_NEAR(bubbles_of("pp=4,dp=2,vpp=2,ga=" + std::to_string(m)).share, 3.0 / (2 * m + 3), kClose) << m;
  }
}

TEST(Bubble, ZeroBubbleSchedules) {
  // Two layers a stage. 1F1B idles (p−1)(F+B+W), ZB-H1 (p−1)(F+B−W), ZB-H2 (p−1)(F+B−2W).
  const auto layers = [](Picoseconds time) { return static_cast<double>(2 * 3 * time); };
  EXPECT_NEAR(static_cast<double>(bubbles_of("pp=4,dp=2,ga=8").idle) / layers(kF + kB + kW), 1, kClose);
  EXPECT_NEAR(static_cast<double>(bubbles_of("pp=4,dp=2,ga=8,schedule=zb-h1").idle) / layers(kF + kB - kW), 1, kClose);
  EXPECT_NEAR(static_cast<double>(bubbles_of("pp=4,dp=2,ga=8,schedule=zb-h2").idle) / layers(kF + kB - 2 * kW), 1,
              kClose);
}

}  // namespace
}  // namespace weft
