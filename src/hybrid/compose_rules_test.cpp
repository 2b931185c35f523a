// Composition against simulation rule by rule: the errors of plans by ZeRO stage, schedule, expert parallelism, tied
// embedding and recomputation, each bin against its own spread (compose_spread.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/random.h"
#include "cost/analytic.h"
#include "hybrid/compose.h"
#include "hybrid/compose_spread.h"
#include "hybrid/hybrid_space.h"
#include "problem/judge.h"

namespace weft {
namespace {

struct Bin {
  int plans = 0;
  double above = 0, below = 0;
  std::string worst;
};
using Bins = std::map<CompositionKind, Bin>;

// `each` random plans of every kind that the space of the problem has.
void add_plans(const PlanRequest& request, std::size_t each, Bins& bins) {
  const Result<PlanProblem> problem = pose(request);
  ASSERT_TRUE(problem.ok()) << problem.error().message;
  const AnalyticCost cost(problem->stack());
  Composer composer(*problem, cost);
  const SpaceOptions options{.schedules = {PlanSchedule::OneForwardOneBackward, PlanSchedule::Interleaved,
                                           PlanSchedule::ZeroBubbleH1, PlanSchedule::ZeroBubbleV, PlanSchedule::GPipe,
                                           PlanSchedule::ZeroBubbleH2, PlanSchedule::DualPipeV}};
  std::map<CompositionKind, std::vector<HybridPlan>> of_kind;
  for (const HybridPlan& plan : enumerate_space(*problem, options).plans)
    of_kind[composition_kind(*problem, plan)].push_back(plan);
  GraphCache graphs{2};
  Rng rng(20261119);
  for (const auto& [kind, plans] : of_kind)
    for (std::size_t i = 0; i < each; ++i) {
      const HybridPlan& plan = plans[rng.below(plans.size())];
      composer.prepare({&plan, 1}, 1);
      const std::optional<Composition> made = composer.compose(plan);
      const Parallelism parallelism = parallelism_of(plan, problem->layers);
      const Result<Judged> judged = judge_strategy(*problem, cost, choose_strategy(parallelism), &graphs);
      const std::string strategy = request.model + " " + print(shorthand_of(parallelism));
      ASSERT_EQ(made.has_value(), judged.ok()) << strategy;
      if (!made) continue;
      const double error = made->step_s / judged->forecast.step_s - 1;
      Bin& bin = bins[kind];
      ++bin.plans;
      if (std::max(error, -error) > std::max(bin.above, bin.below)) bin.worst = strategy;
      bin.above = std::max(bin.above, error);
      bin.below = std::max(bin.below, -error);
      EXPECT_LE(made->bound_s, judged->forecast.step_s * 1.015) << strategy;  // kSafe of the search
    }
}

TEST(ComposeRules, ErrorsOfEveryKindOfPlanAreBounded) {
  Bins bins;
  add_plans({.model = "llama3-8b:layers=8", .cluster = "dgx-h100:2", .strategy = "", .global_batch = 64, .seq = 4096},
            2, bins);
  add_plans({.model = "gpt2-1.5b:layers=16", .cluster = "dgx-a100:2", .strategy = "", .global_batch = 64, .seq = 1024},
            2, bins);
  add_plans(
      {.model = "mixtral-8x7b:layers=8", .cluster = "dgx-h100:2", .strategy = "", .global_batch = 64, .seq = 4096}, 2,
      bins);
  for (const auto& [kind, bin] : bins) {
    const CompositionSpread spread = composition_spread(kind);
    fmt::print("{:<44} {:>3} plans: +{:.2f} % (≤ {:.1f}), -{:.2f} % (≤ {:.1f}); worst {}\n", print(kind), bin.plans,
               100 * bin.above, 100 * spread.above, 100 * bin.below, 100 * spread.below, bin.worst);
    EXPECT_LE(bin.above, spread.above) << print(kind) << ": " << bin.worst;
    EXPECT_LE(bin.below, spread.below) << print(kind) << ": " << bin.worst;
  }
  EXPECT_GE(bins.size(), 20u);
}

}  // namespace
}  // namespace weft
