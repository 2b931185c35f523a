#include "problem/problem.h"

#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "problem/judge.h"

namespace weft {
namespace {

// Two spellings of one number type pose the same problem, to the picosecond and the byte.
TEST(Problem, SpellingsOfOneNumberTypeGiveOneAnswer) {
  const auto judged = [](const char* dtype) {
    const PlanProblem problem = pose({.model = "gpt3-1.3b:layers=2",
                                      .cluster = "a40x4:1",
                                      .global_batch = 16,
                                      .seq = 512,
                                      .dtype = dtype,
                                      .stack = "pytorch-fsdp"})
                                    .value();
    const AnalyticCost cost(problem.stack(), problem.job->tuning);
    const Parallelism replicas{.dp = 4, .zero = 3, .fsdp = 4, .micro_batch = 4, .last_micro_batch = 4};
    return judge_strategy(problem, cost, choose_strategy(replicas)).value();
  };
  const Judged one = judged("fp32"), other = judged("float32");
  EXPECT_EQ(one.forecast.step, other.forecast.step);
  EXPECT_EQ(one.forecast.fullest()->device_total, other.forecast.fullest()->device_total);
}

// 100,000 = 2^5 · 5^5. 512 samples are about 4 M tokens; of 625 = 5^4, 160 devices are left to a replica. 640 = 2^7 · 5
// has more divisors in common with the devices, but leaves 5^4 of them to a pipeline of 126 layers.
TEST(Problem, ADefaultBatchLeavesReplicasThatCanBeDivided) {
  const PlanProblem problem =
      pose({.model = "llama3.1-405b", .cluster = "dgx-h100:12500", .strategy = "", .seq = 8192}).value();
  EXPECT_EQ(problem.global_batch, 625);
}

// A search judges a strategy as `weft simulate` does for the same request.
TEST(Problem, TheJudgeAgreesWithTheForecastOfTheSameRequest) {
  PlanRequest request{
      .model = "llama3-8b:layers=4", .cluster = "dgx-h100:2", .global_batch = 32, .seq = 2048, .headroom = 0.1};
  const PlanProblem problem = pose(request).value();
  const AnalyticCost cost(problem.stack(), problem.job->tuning);
  for (const char* strategy : {"tp=2,pp=2,dp=4,zero=1,mbs=1", "dp=16,zero=3,mbs=2", "tp=4,cp=2,dp=2,mbs=1"}) {
    request.strategy = strategy;
    const Plan plan = make_plan(request).value();
    const Forecast alone = forecast(plan, cost).value();
    const Judged judged = judge_strategy(problem, cost, choose_strategy(*problem.job, request).value()).value();
    EXPECT_EQ(judged.forecast.step, alone.step) << strategy;
    EXPECT_EQ(judged.forecast.fullest()->device_total, alone.fullest()->device_total) << strategy;
    EXPECT_EQ(judged.forecast.fullest()->budget, alone.fullest()->budget) << strategy;
    EXPECT_EQ(judged.tree, plan.strategy) << strategy;
  }
}

// A problem is posed with the constants of the calibration.
TEST(Problem, ACalibrationIsInTheStackBeforeAnyPlanIsMade) {
  Calibration slow;
  ASSERT_TRUE(slow.set("stacks/megatron-lm/host_per_operator", 1e-3, "a test").ok());
  const PlanRequest request{.model = "gpt2-124m", .cluster = "dgx-h100:1", .strategy = "dp=8"};
  const PlanProblem problem = pose(request, slow).value();
  EXPECT_DOUBLE_EQ(problem.stack().host_per_operator.value.value, 1e-3);
  EXPECT_DOUBLE_EQ(problem.layers.short_job->stack.host_per_operator.value.value, 1e-3);
  EXPECT_DOUBLE_EQ(make_plan(request, slow).value().stack().host_per_operator.value.value, 1e-3);
}

}  // namespace
}  // namespace weft
