// Equivalent devices are simulated once: that is exact, also with offloading and with nodes of different types.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "cost/analytic.h"
#include "forecast/forecast.h"

namespace weft {
namespace {

// Two H100 share the PCIe link to their host. Alone, a copy has all of its 63 GB/s; concurrently each has half, which
// interference of computation does not reduce as long as it leaves each more than that. An agent that represents both
// must not mistake the half for the isolated rate.
TEST(Folding, CopiesThatShareALinkAreSlowedByWhatOneHasAlone) {
  const Plan plan = make_plan({.model = "gpt2-124m:layers=2",
                               .cluster = "dgx-h100:1",
                               .strategy = "dp=8,zero=0,offload=activations",
                               .global_batch = 16,
                               .micro_batch = 1,
                               .seq = 512})
                        .value();
  const AnalyticCost cost(plan.stack());
  const Forecast folded = forecast(plan, cost).value();
  EXPECT_EQ(folded.agents, 1);
  EXPECT_EQ(folded.step, forecast(plan, cost, {.fold = false}).value().step);
}

TEST(Folding, IsExactForRandomStrategiesWithOffload) {
  const std::string clusters[] = {"dgx-h100:1",
                                  "dgx-h100:3",
                                  "dgx-a100:1",
                                  "dgx-a100:2",
                                  "dgx-v100:1",
                                  "p100x4:3",
                                  "dgx-a100:1+dgx-h100:1",
                                  "dgx1-v100:1+p100x8:1",
                                  "dgx-h100:2,fabric=fat-tree,leaf=1,oversubscription=4"};
  const std::string kinds[] = {"weights", "gradients", "optimizer", "activations"};
  Rng rng(1);
  int played = 0, folded_agents = 0, all_agents = 0;
  for (int i = 0; i < 150; ++i) {
    std::string offload;
    for (const std::string& kind : kinds)
      if (rng.below(2) == 0) offload += (offload.empty() ? "" : "+") + kind;
    std::string strategy = fmt::format("tp={},pp={},zero={}", 1 << rng.below(3), 1 << rng.below(2), rng.below(4));
    if (!offload.empty()) strategy += ",offload=" + offload;
    if (rng.below(4) == 0) strategy += ",recompute=full";
    const PlanRequest request{
        .model = fmt::format("gpt2-124m:layers={},hidden=256,heads=4,vocab=512", rng.between(2, 4)),
        .cluster = clusters[rng.below(std::size(clusters))],
        .strategy = strategy,
        .global_batch = rng.below(2) == 0 ? 48 : 96,
        .micro_batch = 1,
        .seq = 256};
    const Result<Plan> plan = make_plan(request);
    if (!plan.ok()) continue;  // the batch or the layers do not divide
    const AnalyticCost cost(plan->stack());
    const Result<Forecast> folded = forecast(*plan, cost);
    if (!folded.ok()) continue;
    const Forecast all = forecast(*plan, cost, {.fold = false}).value();
    ASSERT_EQ(folded->step, all.step) << request.model << " " << request.cluster << " " << request.strategy << " "
                                      << *request.global_batch;
    ++played;
    folded_agents += static_cast<int>(folded->agents);
    all_agents += static_cast<int>(all.agents);
  }
  fmt::print("{} strategies: {} agents for {} devices, the same times\n", played, folded_agents, all_agents);
  EXPECT_GT(played, 90);
  EXPECT_LT(folded_agents, all_agents / 3);
}

}  // namespace
}  // namespace weft
