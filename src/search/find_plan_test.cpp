#include "search/find_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

using testing::HasSubstr;

Result<FoundPlan> found(const PlanRequest& request, const FindOptions& options) {
  WEFT_TRY(const PlanProblem problem, pose(request));
  return find_plan(problem, AnalyticCost(problem.stack()), options);
}

const PlanRequest kSmallGpt{.model = "gpt2-124m:hidden=256,heads=4,vocab=1024,layers=6",
                            .cluster = "dgx1-v100-32:1",
                            .strategy = {},
                            .global_batch = 16,
                            .seq = 128};

// No bound of the plans without divided tables remains; a decision for every operator is better still.
TEST(FindPlan, DividesTheTablesOfRecommendersOnAnyNumberOfDevices) {
  const PlanRequest request{.model = "dlrm-mlperf", .cluster = "dgx-a100:16", .strategy = {}, .global_batch = 65536};
  const Result<FoundPlan> plan = found(request, {.enumerate = {.budget = {.evaluations = 1}}});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const PlanOutcome& outcome = plan->outcome;
  const auto divided = std::find_if(outcome.best.begin(), outcome.best.end(), [](const Judged& each) {
    return each.parallelism && each.parallelism->tables && each.parallelism->dp == 128;
  });
  ASSERT_NE(divided, outcome.best.end());
  EXPECT_FALSE(outcome.best.front().parallelism.has_value());
  EXPECT_LT(outcome.best.front().forecast.step_s, divided->forecast.step_s);
  EXPECT_LE(outcome.lower_bound_s, outcome.best.front().forecast.step_s);
}

// 101 samples on 8 devices: replicas of 13 and of 12, and not seven or fewer devices.
TEST(FindPlan, GivesReplicasNearlyTheSameSamplesWhereTheBatchDoesNotDivide) {
  PlanRequest request = kSmallGpt;
  request.global_batch = 101;
  const Result<FoundPlan> plan = found(request, {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(plan->by, HasSubstr("uneven replicas"));
  const Judged& best = plan->outcome.best.front();
  ASSERT_TRUE(best.parallelism.has_value());
  EXPECT_EQ(best.parallelism->shares, (std::vector<std::int64_t>{13, 13, 13, 13, 13, 12, 12, 12}));
  EXPECT_TRUE(best.forecast.breakdown.has_value());
  // What is printed can be given back.
  request.strategy = best.strategy;
  const Result<PlanProblem> problem = pose(request);
  ASSERT_TRUE(problem.ok()) << problem.error().message;
  const Result<StrategyChoice> choice = choose_strategy(*problem->job, request);
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  const Judged again = judge_strategy(*problem, AnalyticCost(problem->stack()), *choice).value();
  EXPECT_EQ(again.forecast.step, best.forecast.step);
  request.global_batch = 96;
  EXPECT_EQ(found(request, {})->by, "enumerate");
}

// Every search returns plans of one judge: simulated, fastest first, with data parallelism among the baselines.
TEST(FindPlan, EverySearchIsComparedWithDataParallelism) {
  for (std::size_t s = 0; s < kSearchNames.size(); ++s) {
    SCOPED_TRACE(kSearchNames[s]);
    const Result<FoundPlan> plan =
        found(kSmallGpt, {.search = static_cast<Search>(s), .enumerate = {.budget = {.evaluations = 30}}});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const PlanOutcome& outcome = plan->outcome;
    ASSERT_FALSE(outcome.best.empty());
    const auto parallel = std::find_if(outcome.baselines.begin(), outcome.baselines.end(),
                                       [](const Baseline& each) { return each.name == "data parallel"; });
    ASSERT_NE(parallel, outcome.baselines.end());
    if (parallel->judged) {
      EXPECT_LE(outcome.best.front().forecast.step_s, parallel->judged->forecast.step_s);
    }
    for (std::size_t i = 1; i < outcome.best.size(); ++i)
      EXPECT_LE(outcome.best[i - 1].score(), outcome.best[i].score());
  }
}

TEST(FindPlan, LayerWiseIsATreeThatSimulatesAsItWasJudged) {
  const FoundPlan plan = found(kSmallGpt, {.search = Search::Layerwise, .tree_file = "found.yaml"}).value();
  EXPECT_EQ(plan.by, "layerwise");
  const auto tree = std::find_if(plan.outcome.best.begin(), plan.outcome.best.end(),
                                 [](const Judged& each) { return each.strategy == "found.yaml"; });
  ASSERT_NE(tree, plan.outcome.best.end());
  PlanRequest again = kSmallGpt;
  again.strategy = tree->strategy;
  again.tree = to_yaml(tree->tree);
  const Plan made = make_plan(again).value();
  EXPECT_EQ(forecast(made, AnalyticCost(made.stack())).value().step, tree->forecast.step);
}

// MCMC starts from exact plans; whatever the judge of plans thinks of its own best one, theirs is not lost.
TEST(FindPlan, AWalkIsNotWorseThanTheExactPlansThatItStartsFrom) {
  for (const char* model : {"alexnet", "lenet"}) {
    const PlanRequest request{.model = model, .cluster = "p100x4:2", .strategy = {}, .global_batch = 256};
    const FoundPlan exact = found(request, {.search = Search::Exact}).value();
    for (const Search more : {Search::Mcmc, Search::Auto}) {
      const FoundPlan walked = found(request, {.search = more, .enumerate = {.budget = {.evaluations = 40}}}).value();
      EXPECT_LE(walked.outcome.best.front().forecast.step, exact.outcome.best.front().forecast.step) << model;
    }
  }
}

TEST(FindPlan, ACancelledSearchOverLayersReturnsDataParallelism) {
  const std::atomic<bool> cancelled = true;
  const FoundPlan plan =
      found(kSmallGpt, {.search = Search::Layerwise, .enumerate = {.budget = {.cancelled = &cancelled}}}).value();
  EXPECT_EQ(plan.outcome.stopped_by, StoppedBy::Cancelled);
  EXPECT_FALSE(plan.outcome.best.empty());
}

TEST(FindPlan, WhatASearchCannotDoIsTold) {
  PlanRequest request{.model = "alexnet", .cluster = "p100x4:1", .strategy = {}, .global_batch = 16};
  EXPECT_THAT(found(request, {.search = Search::Layerwise}).error().message, HasSubstr("no layers that are alike"));
  request.global_batch = 6;
  EXPECT_THAT(found(request, {.search = Search::Mcmc}).error().message, HasSubstr("does not divide over 4 devices"));
}

}  // namespace
}  // namespace weft
