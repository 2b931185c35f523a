#include "problem/shared_plans.h"

#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "forecast/forecast.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

// Plans that share a graph are those that make_plan gives, to the picosecond and the byte.
TEST(SharedPlans, AreAsTheyWouldBeByThemselves) {
  SharedPlans plans(4);
  PlanRequest request{
      .model = "llama3-8b:layers=4", .cluster = "dgx-h100:2", .strategy = "", .global_batch = 32, .seq = 8192};
  for (const char* strategy :
       {"tp=2,pp=2,dp=4,zero=1,sp=1,mbs=2", "tp=2,pp=1,dp=8,zero=0,sp=0,mbs=1,recompute=full",
        "tp=2,pp=2,dp=4,zero=0,sp=0,mbs=2", "tp=2,pp=1,dp=8,zero=3,sp=1,mbs=1",
        "tp=2,cp=2,pp=1,dp=4,zero=1,sp=1,mbs=2,cp_mode=a2a", "tp=2,cp=2,pp=1,dp=4,zero=1,sp=1,mbs=2,cp_mode=gather",
        "tp=2,cp=2,pp=1,dp=4,zero=1,sp=1,mbs=2,cp_mode=ring"}) {
    request.strategy = strategy;
    const Result<Plan> shared = plans.make(request), own = make_plan(request);
    ASSERT_TRUE(shared.ok() && own.ok()) << strategy;
    EXPECT_EQ(to_yaml(shared->strategy), to_yaml(own->strategy)) << strategy;
    EXPECT_EQ(shared->parallelism, own->parallelism) << strategy;
    EXPECT_EQ(shared->batch, own->batch) << strategy;
    const AnalyticCost cost(own->stack);
    const Result<Forecast> one = forecast(*shared, cost), other = forecast(*own, cost);
    ASSERT_TRUE(one.ok() && other.ok()) << strategy;
    EXPECT_EQ(one->step, other->step) << strategy;
    EXPECT_EQ(one->fullest()->device_total, other->fullest()->device_total) << strategy;
  }
}

TEST(SharedPlans, TellWhatIsWrongAsMakePlanDoes) {
  SharedPlans plans(4);
  PlanRequest request{
      .model = "gpt2-124m", .cluster = "dgx-a100:1", .strategy = "tp=1,pp=1,dp=8,zero=0,mbs=1", .global_batch = 32};
  ASSERT_TRUE(plans.make(request).ok());
  for (const char* strategy :
       {"tp=1,pp=1,dp=8,zero=0,mbs=1,recompute=some", "tp=1,pp=5,dp=8,zero=0,mbs=1", "missing.yaml"}) {
    request.strategy = strategy;
    ASSERT_FALSE(plans.make(request).ok());
    EXPECT_EQ(plans.make(request).error().message, make_plan(request).error().message);
  }
}

}  // namespace
}  // namespace weft
