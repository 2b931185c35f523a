#include "problem/recompute_menu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "problem/problem.h"

namespace weft {
namespace {

PlanProblem posed(const char* model, const char* cluster) {
  return pose({.model = model, .cluster = cluster, .strategy = "", .global_batch = 16, .seq = 2048}).value();
}

// What the compiler saves of one sample of the whole model on one device with this recomputation.
double saved_by_plan(const PlanProblem& problem, const RecomputeSet& set) {
  TrainingJob one = *problem.job;
  one.words.global_batch = 1;
  one.devices = {0};
  Parallelism plan;
  plan.recompute = set.base;
  plan.full = in_all_layers(set.full);
  const Plan made = make_plan(std::make_shared<const TrainingJob>(std::move(one)), choose_strategy(plan)).value();
  return static_cast<double>(saved_bytes(made.training(), made.resolved.routes.front().recompute).value);
}

// 4 layers of a menu read from 1: what a set frees in the whole model is what the menu says, 4 times a layer's.
TEST(RecomputeMenu, ASetFreesInTheWholeModelWhatTheMenuSays) {
  const PlanProblem problem = posed("llama3-8b:layers=4", "dgx-h100:1");
  const std::vector<RecomputeSet>& sets = problem.layers.recompute.sets;
  const double none = saved_by_plan(problem, sets.front());
  for (const RecomputeSet& set : sets) {
    const double freed = none - saved_by_plan(problem, set);
    EXPECT_NEAR(freed, sets.front().saved - set.saved, 1e-9 * none + 0.002 * none)
        << static_cast<int>(set.base) << " " << (set.full.empty() ? "" : set.full.back());
  }
}

TEST(RecomputeMenu, BeginsWithTheNamedSetsAndItsFrontTradesBytesForSeconds) {
  for (const char* model : {"llama3-8b", "gpt3-13b", "mixtral-8x7b", "deepseek-v3"}) {
    const RecomputeMenu menu = posed(model, "dgx-h100:4").layers.recompute;
    ASSERT_GT(menu.sets.size(), 6u) << model;
    for (const Recompute base : {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Op})
      EXPECT_TRUE(menu.sets[static_cast<std::size_t>(base)].same_modules({base})) << model;
    ASSERT_GE(menu.front.size(), 4u) << model;
    EXPECT_EQ(menu.front.front(), static_cast<int>(Recompute::None)) << model;
    for (std::size_t i = 1; i < menu.front.size(); ++i) {
      const RecomputeSet &before = menu.sets[menu.front[i - 1]], &set = menu.sets[menu.front[i]];
      EXPECT_LT(set.saved, before.saved) << model;
      EXPECT_GT(set.seconds, before.seconds) << model;
    }
    EXPECT_EQ(menu.sets[menu.front.front()].seconds, 0) << model;
  }
}

// Every subset of the products that `op` keeps, up to 2^10 of them: none frees as many bytes as a set of the chain in
// less time, but for what one product is worth (the chain is the linear relaxation of the knapsack, rounded down).
TEST(RecomputeMenu, NoSubsetOfTheProductsIsBetterThanTheChainByMoreThanOneProduct) {
  const PlanProblem problem = posed("llama3-8b:layers=1", "dgx-h100:1");
  const RecomputeMenu& menu = problem.layers.recompute;
  std::vector<RecomputeSet> chain;
  for (const RecomputeSet& set : menu.sets)
    if (set.base == Recompute::Op) chain.push_back(set);
  ASSERT_GE(chain.size(), 3u);
  struct Item {
    double bytes, seconds;
  };
  // Products are independent: each frees its own output.
  std::vector<Item> items;
  for (std::size_t i = 1; i < chain.size(); ++i)
    items.push_back({chain[i - 1].saved - chain[i].saved, chain[i].seconds - chain[i - 1].seconds});
  ASSERT_LE(items.size(), 10u);
  for (std::size_t i = 1; i < items.size(); ++i)  // by falling density
    EXPECT_GE(items[i - 1].bytes * items[i].seconds, 0.999 * items[i].bytes * items[i - 1].seconds);
  for (std::size_t k = 0; k < chain.size(); ++k)
    for (std::size_t subset = 0; subset < std::size_t{1} << items.size(); ++subset) {
      double bytes = 0, seconds = chain.front().seconds;
      for (std::size_t i = 0; i < items.size(); ++i)
        if (subset >> i & 1) bytes += items[i].bytes, seconds += items[i].seconds;
      // A corner of the relaxation: as many bytes freed take at least as long.
      if (bytes >= chain.front().saved - chain[k].saved) {
        EXPECT_GE(seconds, 0.999 * chain[k].seconds) << k << " " << subset;
      }
    }
}

// Of DeepSeek-V3, kv_b and q_b of latent attention free many bytes per second: an expert's first choice.
TEST(RecomputeMenu, FindsTheProductsThatAnExpertRecomputesFirst) {
  const RecomputeMenu menu = posed("deepseek-v3", "hgx-h800:4").layers.recompute;
  const auto chosen = [&](const char* module) {
    return std::any_of(menu.sets.begin(), menu.sets.end(), [&](const RecomputeSet& set) {
      return set.base == Recompute::Op && set.full.size() <= 4 &&
             std::find(set.full.begin(), set.full.end(), module) != set.full.end();
    });
  };
  EXPECT_TRUE(chosen("layers.*.attn.kv_b"));
  EXPECT_TRUE(chosen("layers.*.attn.q_b"));
}

// A network that is not one stack of layers has the named sets only.
TEST(RecomputeMenu, WithoutOneStackOfLayersOnlyTheNamedSets) {
  const RecomputeMenu menu =
      pose({.model = "resnet50", .cluster = "dgx-a100:1", .strategy = "", .global_batch = 64}).value().layers.recompute;
  EXPECT_EQ(menu.sets.size(), 4u);
  EXPECT_EQ(menu.front, (std::vector<std::uint8_t>{0, 3, 2}));
}

}  // namespace
}  // namespace weft
