// The host that issues the work: what it issues, and steps that wait for it.
#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "forecast/forecast.h"
#include "graph/autocast.h"
#include "graph/operators.h"
#include "price/launches.h"

namespace weft {
namespace {

PlanRequest request_of(const char* model, std::int64_t batch, const char* stack, const char* dtype,
                       const char* cluster = "dgx-h200:1") {
  PlanRequest request{.model = model, .cluster = cluster, .strategy = "dp=1", .dtype = dtype, .stack = stack};
  request.global_batch = request.micro_batch = batch;
  request.device_count = 1;
  return request;
}

Forecast forecast_of(const Plan& plan) { return forecast(plan, AnalyticCost(plan.stack())).value(); }

// Of all operators that are kernels; the first gradient of a parameter stays where it is.
double host_seconds(const Plan& plan) {
  const AnalyticCost cost(plan.stack());
  double total = 0;
  for (OpId op : plan.graph().ops().ids()) {
    const Signature& signature = plan.graph().signature(op);
    if (signature.kind == OpKind::Accumulate) continue;
    if (cost.compute({.signature = &signature, .device = &plan.cluster().spec(DeviceId(0))}).time > 0)
      total += host_time_of(plan.graph(), op, plan.stack()).value;
  }
  return total;
}

// measurements/h200/steps_kernels.csv, gpt2-355m with autocast: 534 times aten::copy_.
TEST(Host, AutocastCastsAsOftenAsItWasMeasuredTo) {
  const Plan plan = make_plan(request_of("gpt2-355m", 4, "pytorch-ddp", "amp-bf16")).value();
  int casts = 0;
  for (OpId op : plan.graph().ops().ids()) {
    const Signature& signature = plan.graph().signature(op);
    casts += is_cast(signature) + weight_casts_of(signature, plan.stack());
    casts += signature.kind == OpKind::CrossEntropy;  // of the logarithms for nll_loss, and of their gradient
  }
  EXPECT_EQ(casts, 534);
}

TEST(Host, PureTypesCastNothing) {
  const Plan plan = make_plan(request_of("gpt2-355m", 4, "pytorch-bf16", "bf16")).value();
  for (OpId op : plan.graph().ops().ids()) {
    EXPECT_FALSE(is_cast(plan.graph().signature(op)));
    EXPECT_EQ(weight_casts_of(plan.graph().signature(op), plan.stack()), 0);
  }
}

// A batch so small that the device waits: the step takes what the host takes for its launches, twice that on a host that
// is twice as slow, and what the device computes with a graph.
TEST(Host, SmallBatchesTakeTheTimeOfTheirLaunches) {
  const Plan plan = make_plan(request_of("bert-large", 1, "pytorch-bf16", "bf16")).value();
  const double host = host_seconds(plan), step = forecast_of(plan).step_s;
  EXPECT_NEAR(step / host, 1, 0.05);
  const Plan slow = make_plan(request_of("bert-large", 1, "pytorch-bf16", "bf16", "dgx-h200:1,host=2")).value();
  EXPECT_NEAR(forecast_of(slow).step_s / (2 * host), 1, 0.05);
  const Plan captured = make_plan(request_of("bert-large", 1, "pytorch-bf16:graph_capture=true", "bf16")).value();
  EXPECT_LT(forecast_of(captured).step_s, 0.7 * step);
  EXPECT_LT(host_seconds(make_plan(request_of("bert-large", 1, "pytorch-compile", "amp-bf16")).value()), 0.3 * host);
}

TEST(Host, LargeBatchesHideIt) {
  const Plan plan = make_plan(request_of("bert-large", 64, "pytorch-bf16", "bf16")).value();
  const Plan slow = make_plan(request_of("bert-large", 64, "pytorch-bf16", "bf16", "dgx-h200:1,host=2")).value();
  EXPECT_NEAR(forecast_of(slow).step_s / forecast_of(plan).step_s, 1, 0.02);
}

// Gradients of one micro-batch come to be in the backward pass, as activations go; where micro-batches add to them, or a
// framework keeps them in place, they are there all the time.
TEST(Host, GradientsOfOneMicroBatchAreNotHeld) {
  const auto peak = [](const char* stack, std::int64_t batch) {
    PlanRequest request = request_of("gpt2-355m", 16, stack, "bf16");
    request.micro_batch = batch;
    return static_cast<double>(forecast_of(make_plan(request).value()).memory.front().allocated.total().value);
  };
  const double gradients = 2 * 354.8e6;
  EXPECT_NEAR(peak("pytorch-bf16:held_gradients=true", 16) - peak("pytorch-bf16", 16), gradients, 0.05 * gradients);
  EXPECT_EQ(peak("pytorch-bf16:held_gradients=true", 8), peak("pytorch-bf16", 8));
}

}  // namespace
}  // namespace weft
