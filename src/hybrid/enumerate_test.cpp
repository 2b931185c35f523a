#include "hybrid/enumerate.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "cost/analytic.h"
#include "hybrid/hybrid_problem.h"

namespace weft {
namespace {

PlanRequest asked(const char* model, const char* cluster, std::int64_t batch) {
  PlanRequest request;
  request.model = model;
  request.cluster = cluster;
  request.global_batch = batch;
  return request;
}

struct Found {
  PlanProblem problem;
  PlanOutcome outcome;
};

Result<Found> find(const PlanRequest& request, const EnumerateOptions& options = {}) {
  WEFT_TRY(PlanProblem problem, pose(request));
  const AnalyticCost cost(problem.stack());
  WEFT_TRY(PlanOutcome outcome, enumerate(problem, cost, options));
  return Found{std::move(problem), std::move(outcome)};
}

void expect_lawful(const Found& found) {
  const PlanOutcome& outcome = found.outcome;
  const Abilities stack = found.problem.stack().can.value;
  ASSERT_FALSE(outcome.best.empty());
  const Judged& winner = outcome.best.front();
  EXPECT_TRUE(winner.forecast.feasible);
  // The winner is the simplest of those within 1 % of the fastest; the others follow by time.
  const Judged& fastest = outcome.fastest();
  EXPECT_LE(winner.forecast.step_s, 1.01 * fastest.forecast.step_s);
  for (std::size_t i = 1; i < outcome.best.size(); ++i) {
    if (i > 1) {
      EXPECT_LE(outcome.best[i - 1].score(), outcome.best[i].score()) << outcome.best[i].strategy;
    }
    if (outcome.best[i].forecast.step_s <= 1.01 * fastest.forecast.step_s) {
      EXPECT_LE(knobs_of(winner, stack), knobs_of(outcome.best[i], stack)) << outcome.best[i].strategy;
    }
    EXPECT_NE(outcome.best[i].strategy, winner.strategy);
  }
  for (const Baseline& baseline : outcome.baselines) {
    EXPECT_NE(baseline.judged.has_value(), !baseline.why_not.empty()) << baseline.name;
    if (baseline.judged) {
      EXPECT_LE(fastest.score(), baseline.judged->score()) << baseline.name;
    }
  }
  EXPECT_EQ(outcome.lower_bound_s > fastest.forecast.step_s, outcome.beyond_bound);  // 0: unknown
  EXPECT_FALSE(outcome.dimensions.empty());
  EXPECT_GE(outcome.gap().value_or(0), 0);
  std::int64_t accounted = outcome.counts.composed;
  for (const auto& [reason, count] : outcome.counts.pruned) accounted += count;
  if (outcome.counts.composed > 0) {
    EXPECT_EQ(accounted, outcome.counts.considered);
  }
  for (std::size_t i = 1; i < outcome.front.size(); ++i) {  // slower, and smaller
    EXPECT_GE(outcome.front[i].step_s, outcome.front[i - 1].step_s);
    EXPECT_LT(outcome.front[i].memory, outcome.front[i - 1].memory);
  }
}

TEST(Enumerate, TheWinnerIsNeverSlowerThanABaselineOrAnotherCandidate) {
  for (const PlanRequest& request :
       {asked("gpt2-124m", "dgx-a100:1", 64), asked("llama3-8b:layers=8", "dgx-h100:2", 32),
        asked("mixtral-8x7b:layers=4", "dgx-h100:1", 32)}) {
    const Result<Found> found = find(request);
    ASSERT_TRUE(found.ok()) << found.error().message;
    expect_lawful(*found);
  }
}

TEST(Enumerate, ModelsOfEveryKindAreComposed) {
  EnumerateOptions few;
  few.budget.evaluations = 8;
  for (const PlanRequest& request : {asked("resnet50", "dgx-a100:1", 256), asked("t5-base", "dgx-a100:1", 32),
                                     asked("vit-b-16", "dgx-a100:1", 256), asked("nmt", "dgx-a100:1", 256)}) {
    const Result<Found> found = find(request, few);
    ASSERT_TRUE(found.ok()) << request.model << ": " << found.error().message;
    expect_lawful(*found);
    EXPECT_GT(found->outcome.counts.composed, 0) << request.model;
    EXPECT_GT(found->outcome.lower_bound_s, 0) << request.model;
  }
}

// Plans by hand for networks that are not one stack of layers. T5-11B on 16 A100 was once 16 % slower than the third.
TEST(Enumerate, NoPlanByHandBeatsTheWinner) {
  struct Hand {
    PlanRequest request;
    std::vector<const char*> plans;
  };
  for (const Hand& hand :
       {Hand{asked("t5-large", "dgx-a100:1", 128),
             {"dp=8,zero=1,mbs=4", "dp=8,zero=2,mbs=8", "tp=2,dp=4,zero=1,mbs=8,recompute=selective",
              "dp=8,zero=0,mbs=16,recompute=selective", "tp=2,pp=2,dp=2,zero=1,mbs=4"}},
        Hand{asked("resnet50", "dgx-a100:2", 1024), {"dp=16,mbs=64", "dp=16,mbs=32", "dp=16,zero=1,mbs=64"}},
        Hand{asked("vgg16", "dgx-a100:2", 1024), {"dp=16,mbs=64", "dp=16,zero=2,mbs=64", "dp=16,zero=3,mbs=64"}}}) {
    const Result<Found> found = find(hand.request);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const AnalyticCost cost(found->problem.stack());
    for (const char* plan : hand.plans) {
      PlanRequest request = hand.request;
      request.strategy = plan;
      const Judged judged =
          judge_strategy(found->problem, cost, choose_strategy(*found->problem.job, request).value()).value();
      if (!judged.score().fits()) continue;
      EXPECT_LE(found->outcome.best.front().forecast.step_s, 1.005 * judged.forecast.step_s)
          << hand.request.model << " " << plan << ", not " << found->outcome.best.front().strategy;
    }
  }
}

TEST(Enumerate, FindsTheSameOnOneThreadAndOnTwo) {
  EnumerateOptions one, two;
  one.threads = 1;
  two.threads = 2;
  const Result<Found> a = find(asked("gpt2-124m", "dgx-a100:2", 64), one),
                      b = find(asked("gpt2-124m", "dgx-a100:2", 64), two);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_EQ(a->outcome.best.size(), b->outcome.best.size());
  for (std::size_t i = 0; i < a->outcome.best.size(); ++i) {
    EXPECT_EQ(a->outcome.best[i].strategy, b->outcome.best[i].strategy);
    EXPECT_EQ(a->outcome.best[i].forecast.step, b->outcome.best[i].forecast.step);
  }
  EXPECT_EQ(a->outcome.counts.pruned, b->outcome.counts.pruned);
  EXPECT_EQ(a->outcome.counts.simulated, b->outcome.counts.simulated);
  EXPECT_EQ(a->outcome.lower_bound_s, b->outcome.lower_bound_s);
}

// With no time at all only the baselines are simulated.
TEST(Enumerate, WithoutABudgetTheBestBaselineIsReturned) {
  EnumerateOptions none;
  none.budget.seconds = 1e-9;
  const Result<Found> found = find(asked("gpt2-124m", "dgx-a100:1", 64), none);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->outcome.stopped_by, StoppedBy::Time);
  expect_lawful(*found);
  std::set<std::string> baselines;
  for (const Baseline& baseline : found->outcome.baselines)
    if (baseline.judged) baselines.insert(baseline.judged->strategy);
  for (const Judged& judged : found->outcome.best) EXPECT_TRUE(baselines.contains(judged.strategy));
}

// Baselines are what engineers run: published degrees of a model of the zoo, and pipelines interleaved where they divide.
TEST(Enumerate, ComparesWithPublishedDegreesAndAnInterleavedRuleOfThumb) {
  EnumerateOptions none;
  none.budget.seconds = 1e-9;
  const Result<Found> found = find(asked("llama3-70b", "dgx-h100:8", 256), none);
  ASSERT_TRUE(found.ok());
  std::map<std::string, Parallelism> plans;
  for (const Baseline& baseline : found->outcome.baselines)
    if (baseline.judged) plans.emplace(baseline.name, *baseline.judged->parallelism);
  ASSERT_TRUE(plans.contains("published recipe") && plans.contains("Megatron 3D rule of thumb"));
  const Parallelism published = plans["published recipe"], usual = plans["Megatron 3D rule of thumb"];
  EXPECT_EQ(std::tuple(published.tp, published.cp, published.pp, published.vpp, published.dp),
            std::tuple(4, 2, 4, 5, 2));
  EXPECT_EQ(usual.tp, 8);
  EXPECT_GT(usual.vpp, 1);
}

TEST(Enumerate, SaysWhatComesClosestWhereNothingFits) {
  const Result<Found> found = find(asked("llama3.1-405b", "dgx-a100:1", 8));
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->outcome.best.empty());
  ASSERT_TRUE(found->outcome.closest.has_value());
  EXPECT_GT(found->outcome.closest->score().over.value, 0);
}

// A prime batch leaves one replica: 8 devices, 7 samples.
TEST(Enumerate, ABatchThatFewDegreesDivideStillHasPlans) {
  const Result<Found> found = find(asked("gpt2-124m", "dgx-a100:1", 7));
  ASSERT_TRUE(found.ok()) << found.error().message;
  for (const Judged& judged : found->outcome.best) EXPECT_EQ(judged.parallelism->global_batch(), 7);
}

TEST(HybridSpace, EveryPlanHasTheBatchAndTheDevicesAsked) {
  const Result<PlanProblem> problem = pose(asked("llama3-8b", "dgx-h100:4", 96));
  ASSERT_TRUE(problem.ok());
  const HybridSpace space = enumerate_space(*problem, SpaceOptions::whole());
  ASSERT_GT(space.plans.size(), 1000u);
  std::set<HybridPlan> seen;
  for (const HybridPlan& plan : space.plans) {
    const Parallelism parallelism = parallelism_of(plan, problem->layers);
    EXPECT_EQ(parallelism.world(), 32);
    EXPECT_EQ(parallelism.global_batch(), 96);
    EXPECT_TRUE(seen.insert(plan).second) << print(shorthand_of(parallelism));
  }
}

// `weft simulate` reads the shorthand that is printed.
TEST(HybridSpace, TheShorthandOfAPlanIsReadBack) {
  const Result<PlanProblem> problem = pose(asked("mixtral-8x7b", "dgx-h100:4", 64));
  ASSERT_TRUE(problem.ok());
  const HybridSpace space = enumerate_space(*problem);
  for (std::size_t i = 0; i < space.plans.size(); i += 97) {
    const Parallelism parallelism = parallelism_of(space.plans[i], problem->layers);
    const Result<Shorthand> words = parse_shorthand(print(shorthand_of(parallelism)));
    ASSERT_TRUE(words.ok()) << words.error().message;
    const Result<Parallelism> read = complete(*words, 32, {.global_batch = 64});
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, parallelism) << print(shorthand_of(parallelism));
  }
}

TEST(HybridSpace, APlanIsFoundFromItsParallelism) {
  const Result<PlanProblem> problem = pose(asked("llama3-8b", "dgx-h100:2", 32));
  ASSERT_TRUE(problem.ok());
  for (const HybridPlan& plan : enumerate_space(*problem).plans)
    EXPECT_EQ(hybrid_plan_of(parallelism_of(plan, problem->layers), problem->layers), plan);
  Parallelism other = parallelism_of({.dp = 16}, problem->layers);
  other.recompute = Recompute::Op;
  other.full = in_all_layers({"layers.*.attn.qkv"});
  EXPECT_EQ(hybrid_plan_of(other, problem->layers), std::nullopt);
}

// 70 billion parameters have 16 bytes each, 8 devices 80 GB: only with the optimizer's state in the host's memory.
TEST(Enumerate, OffloadsWhereNothingFits) {
  const Result<Found> found = find(asked("llama3-70b:seq=4096", "dgx-h100:1", 32));
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_FALSE(found->outcome.best.empty());
  for (const Judged& each : found->outcome.best) EXPECT_FALSE(each.parallelism->offload.empty()) << each.strategy;
  EXPECT_FALSE(found->outcome.baselines.empty());
}

// Offload is tried as a change of the fastest plans and not enumerated: it leaves memory in which nothing is recomputed.
TEST(Enumerate, SaysThatAPlanIsOutsideOfWhatTheBoundIsOver) {
  PlanRequest request = asked("gpt3-6.7b", "v100x8:1", 64);
  request.seq = 1024;
  const Result<Found> found = find(request);
  ASSERT_TRUE(found.ok()) << found.error().message;
  expect_lawful(*found);
  const PlanOutcome& outcome = found->outcome;
  EXPECT_FALSE(outcome.fastest().parallelism->offload.empty()) << outcome.fastest().strategy;
  EXPECT_TRUE(outcome.beyond_bound);
  EXPECT_FALSE(outcome.gap().has_value());
  EnumerateOptions within;
  within.space.allows = [](const Parallelism& plan) { return plan.offload.empty(); };
  const Result<Found> enumerated = find(request, within);
  ASSERT_TRUE(enumerated.ok()) << enumerated.error().message;
  EXPECT_FALSE(enumerated->outcome.beyond_bound);
  EXPECT_GE(enumerated->outcome.fastest().forecast.step_s, outcome.lower_bound_s);
}

TEST(Enumerate, TheAnswerDoesNotDependOnHowManyPlansAreShown) {
  for (const auto& [model, cluster, batch] :
       {std::tuple("llama3-8b:layers=8", "dgx-h100:1", 24), std::tuple("mixtral-8x7b:layers=4", "dgx-h100:1", 64),
        std::tuple("t5-3b:layers=4", "dgx-a100:1", 64)}) {
    PlanRequest request = asked(model, cluster, batch);
    request.seq = 1024;
    const Result<Found> one = find(request, {.top = 1}), many = find(request, {.top = 12});
    ASSERT_TRUE(one.ok() && many.ok()) << model;
    EXPECT_EQ(one->outcome.best.front().strategy, many->outcome.best.front().strategy) << model;
    EXPECT_LT(one->outcome.best.size(), many->outcome.best.size());
  }
}

// The head of Llama 3 is worth more than a layer, its embedding nothing: the last stage has fewer layers. (By hand, seen
// 7 % faster than equal stages: tp=4,pp=4,dp=2,zero=1,sp=1,mbs=1,schedule=zb-h2,stages=9+8+8+7.)
TEST(Enumerate, BalancesStagesBySeconds) {
  PlanRequest request = asked("llama3-8b", "v100x8:4", 64);
  request.seq = 2048;
  request.dtype = "fp16";
  const Result<Found> found = find(request);
  ASSERT_TRUE(found.ok()) << found.error().message;
  const AnalyticCost cost(found->problem.stack());
  const auto by_hand = [&](const char* words) {
    const Parallelism plan = complete(parse_shorthand(words).value(), 32, {.global_batch = 64}).value();
    return judge_strategy(found->problem, cost, choose_strategy(plan)).value().forecast.step_s;
  };
  const double balanced = by_hand("tp=4,pp=4,dp=2,zero=1,sp=1,mbs=1,schedule=zb-h2,stages=9+8+8+7");
  EXPECT_LT(balanced, by_hand("tp=4,pp=4,dp=2,zero=1,sp=1,mbs=1,schedule=zb-h2"));
  EXPECT_LE(found->outcome.fastest().forecast.step_s, 1.005 * balanced);
}

// 7 layers over 3 stages: the remaining one in the middle; with light ends 9 = 3 + 3 + 3, less one at either end. 126
// layers fill 128 chunks where embedding and head are stages of their own.
TEST(HybridSpace, StagesAreCutWithTheRestInTheMiddle) {
  EXPECT_EQ(stage_layers(7, 3, StageSplit::Even), (std::vector<std::int64_t>{2, 3, 2}));
  EXPECT_EQ(stage_layers(7, 3, StageSplit::LightEnds), (std::vector<std::int64_t>{2, 3, 2}));
  EXPECT_EQ(stage_layers(8, 4, StageSplit::Even), (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(stage_layers(10, 4, StageSplit::LightEnds), (std::vector<std::int64_t>{2, 3, 3, 2}));
  EXPECT_TRUE(stage_layers(2, 4, StageSplit::Even).empty());
  EXPECT_EQ(stage_layers(2, 4, StageSplit::LightEnds), (std::vector<std::int64_t>{0, 1, 1, 0}));
  EXPECT_TRUE(stage_layers(1, 4, StageSplit::LightEnds).empty());
  const std::vector<std::int64_t> chunks = stage_layers(126, 128, StageSplit::LightEnds);
  ASSERT_EQ(chunks.size(), 128u);
  EXPECT_EQ(chunks.front(), 0);
  EXPECT_EQ(chunks[1], 1);
  EXPECT_EQ(chunks.back(), 0);
}

// Patches of an image that tensor parallelism has summed in part cannot cross to another stage: the embedding of an image
// is no stage of its own. 12 layers: 14 chunks of one would be 0+1+…+1+0, 12 chunks 0+1+1+1+1+2+2+1+1+1+1+0.
TEST(HybridSpace, OnlyEmbeddingsOfTokensAreStagesOfTheirOwn) {
  const PlanProblem text = pose(asked("gpt2-124m", "dgx-a100:1", 64)).value();
  const PlanProblem image = pose(asked("vit-b-16", "dgx-a100:1", 64)).value();
  EXPECT_EQ(considered_stages(text, 2, 7, StageSplit::LightEnds).size(), 14u);
  EXPECT_TRUE(considered_stages(image, 2, 7, StageSplit::LightEnds).empty());
  EXPECT_TRUE(considered_stages(text, 2, 6, StageSplit::LightEnds).empty());
  EXPECT_EQ(considered_stages(image, 2, 6, StageSplit::Even).size(), 12u);
}

}  // namespace
}  // namespace weft
