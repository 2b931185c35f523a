#include "hybrid/recompute_by_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cost/analytic.h"
#include "problem/judge.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

PlanProblem posed(const char* model, const char* cluster, std::int64_t batch, double gib) {
  PlanRequest request{.model = model, .cluster = cluster, .strategy = "", .global_batch = batch, .seq = 2048};
  request.max_memory = Bytes(static_cast<std::int64_t>(gib * (std::int64_t{1} << 30)));
  return pose(request).value();
}

Parallelism read(const std::string& words, const PlanProblem& problem) {
  return complete(parse_shorthand(words).value(), problem.devices, {.global_batch = problem.global_batch}).value();
}

Judged judged(const PlanProblem& problem, const Parallelism& plan) {
  return judge_strategy(problem, AnalyticCost(problem.stack()), choose_strategy(plan)).value();
}

// Layers that recompute, of each stage.
std::vector<std::int64_t> layers_of(const Parallelism& plan, std::int64_t stages) {
  std::vector<std::int64_t> layers = plan.recompute_layers;
  if (layers.size() == 1) layers.assign(static_cast<std::size_t>(stages), layers.front());
  return layers;
}

// 1F1B holds most micro-batches on the first stage: the later a stage, the fewer layers recompute; and with one more
// layer that does not, a stage does not fit.
TEST(RecomputeByStage, FillsTheMemoryOfEveryStage) {
  const PlanProblem problem = posed("gpt3-2.7b", "dgx-a100:1", 32, 18);
  const Parallelism plan = read("pp=4,dp=2,zero=1,mbs=2,recompute=full", problem);
  const Judged alike = judged(problem, plan);
  ASSERT_TRUE(alike.forecast.feasible);
  const std::optional<Parallelism> made = recompute_by_stage(problem, plan, {}, nullptr);
  ASSERT_TRUE(made.has_value());
  const Judged filled = judged(problem, *made);
  EXPECT_TRUE(filled.forecast.feasible) << filled.strategy;
  EXPECT_LT(filled.forecast.step, alike.forecast.step) << filled.strategy;
  const std::vector<std::int64_t> layers = layers_of(*made, 4);
  ASSERT_EQ(layers.size(), 4u) << filled.strategy;
  EXPECT_TRUE(std::is_sorted(layers.rbegin(), layers.rend())) << filled.strategy;
  EXPECT_LT(layers.back(), layers.front()) << filled.strategy;
  for (std::size_t stage = 0; stage < layers.size(); ++stage) {
    if (layers[stage] == 0) continue;
    Parallelism fewer = *made;
    fewer.recompute_layers = layers;
    --fewer.recompute_layers[stage];
    EXPECT_FALSE(judged(problem, fewer).forecast.feasible) << stage << " of " << filled.strategy;
  }
}

// What is dropped first is the last link: whole layers, here down to none, then all but matrix products.
TEST(RecomputeByStage, DropsLinksFromTheEndOfTheChain) {
  const PlanProblem problem = posed("gpt3-2.7b", "dgx-a100:1", 32, 30);
  const Parallelism plan = read("dp=8,zero=1,mbs=2,recompute=full", problem);
  const Parallelism chain = layers_through_operators(problem, plan).value();
  EXPECT_EQ(print(shorthand_of(chain)), "tp=1,pp=1,dp=8,zero=1,mbs=2,recompute=op,full=layers.*");
  std::vector<std::string> dropped;
  for (const Parallelism& each : with_links_dropped(problem, chain)) dropped.push_back(print(shorthand_of(each)));
  EXPECT_THAT(dropped, ElementsAre("tp=1,pp=1,dp=8,zero=1,mbs=2,recompute=op,full=layers.*",
                                   "tp=1,pp=1,dp=8,zero=1,mbs=2,recompute=op", "tp=1,pp=1,dp=8,zero=1,mbs=2"));
  ASSERT_TRUE(judged(problem, plan).forecast.feasible);
  const std::optional<Parallelism> made = recompute_by_stage(problem, chain, {}, nullptr);
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(judged(problem, *made).forecast.feasible);
  EXPECT_LT(judged(problem, *made).forecast.step, judged(problem, plan).forecast.step);
}

TEST(RecomputeByStage, WhatRecomputesNothingStaysAsItIs) {
  const PlanProblem problem = posed("gpt3-2.7b", "dgx-a100:1", 32, 70);
  EXPECT_EQ(recompute_by_stage(problem, read("dp=8,zero=1,mbs=1", problem), {}, nullptr), std::nullopt);
  EXPECT_EQ(layers_through_operators(problem, read("dp=8,zero=1,mbs=1,recompute=op", problem)), std::nullopt);
}

// Stages of 8 layers: 3 at most of any stage; all 8 of one stage are all.
TEST(RecomputeByStage, AsManyLayersOfEveryStageAsAnyNeeds) {
  const PlanProblem problem = posed("gpt3-2.7b", "dgx-a100:1", 32, 70);
  const auto alike = [&](const char* words) { return alike_in_all_stages(problem, read(words, problem)); };
  EXPECT_EQ(alike("pp=4,recompute=full:3+1+0+0")->recompute_layers, std::vector<std::int64_t>{3});
  EXPECT_EQ(alike("pp=4,recompute=full:8+1+0+0"), std::nullopt);
}

// The last link gains 2 units of room on rank 0, of which it has 1, and all on rank 1; the first one then is open on rank
// 1 alone, 1 of 4: (0 + 1/4) / 2.
TEST(RecomputeByStage, SharesOfLinksAreThoseThatRanksHaveRoomFor) {
  EXPECT_THAT(dropped_shares({{1, 5}, {-1, 1}, {-9, -3}}), ElementsAre(0.75, 0.125));
}

}  // namespace
}  // namespace weft
