// Composition against the simulator for models that are not one stack of equal layers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "cost/analytic.h"
#include "hybrid/compose.h"
#include "hybrid/compose_spread.h"
#include "hybrid/hybrid_space.h"
#include "problem/judge.h"

namespace weft {
namespace {

struct Spread {
  std::vector<double> time, memory;  // absolute relative errors
  double bound_above = 0;            // by how much a bound exceeds its simulated time, at most

  double worst_time() const { return *std::max_element(time.begin(), time.end()); }
  double worst_memory() const { return *std::max_element(memory.begin(), memory.end()); }
};

// Random plans of a problem, composed and simulated.
Spread spread_of(const PlanRequest& request, int samples, SpaceOptions options = {}) {
  Spread spread;
  const Result<PlanProblem> problem = pose(request);
  EXPECT_TRUE(problem.ok()) << (problem.ok() ? "" : problem.error().message);
  if (!problem.ok()) return spread;
  const AnalyticCost cost(problem->stack());
  Composer composer(*problem, cost);
  options.most_micro_batch = 64;
  const HybridSpace space = enumerate_space(*problem, options);
  Rng rng(20261118);
  for (int i = 0; i < samples; ++i) {
    const HybridPlan& plan = space.plans[rng.below(space.plans.size())];
    composer.prepare({&plan, 1}, 1);
    const std::optional<Composition> made = composer.compose(plan);
    const std::string strategy = print(shorthand_of(parallelism_of(plan, problem->layers)));
    const Result<Judged> judged =
        judge_strategy(*problem, cost, choose_strategy(parallelism_of(plan, problem->layers)));
    EXPECT_EQ(made.has_value(), judged.ok()) << strategy << "\n" << (judged.ok() ? "" : judged.error().message);
    if (!made || !judged.ok()) continue;
    const double time = made->step_s / judged->forecast.step_s - 1;
    const auto held = static_cast<double>(judged->forecast.fullest()->device_total.value);
    const double memory = static_cast<double>(made->memory) / held - 1;
    const double above = made->bound_s / judged->forecast.step_s - 1;
    const CompositionSpread known = composition_spread(composition_kind(*problem, plan));
    EXPECT_LE(time, known.above) << request.model << " " << strategy;
    EXPECT_LE(-time, known.below) << request.model << " " << strategy;
    spread.time.push_back(std::abs(time));
    spread.memory.push_back(std::abs(memory));
    spread.bound_above = std::max(spread.bound_above, above);
    if (std::abs(time) > 0.03 || std::abs(memory) > 0.05 || above > 0)
      fmt::print("  {} {}: time {:+.2f} %, memory {:+.2f} %, bound {:+.2f} %\n", request.model, strategy, 100 * time,
                 100 * memory, 100 * above);
  }
  fmt::print(
      "{}: {} plans, time median {:.2f} %, worst {:.2f} %; memory worst {:.2f} %; bound above by {:.2f} %\n",
      request.model, spread.time.size(),
      [&] {
        std::vector<double> sorted = spread.time;
        std::sort(sorted.begin(), sorted.end());
        return 100 * sorted[sorted.size() / 2];
      }(),
      100 * spread.worst_time(), 100 * spread.worst_memory(), 100 * spread.bound_above);
  return spread;
}

struct Case {
  const char* model;
  const char* cluster;
  std::int64_t batch;
  const char* stack;
  int samples;
  double memory;  // bound on its error
};

class ComposeModels : public testing::TestWithParam<Case> {};

TEST_P(ComposeModels, AgreesWithTheSimulator) {
  const Case& of = GetParam();
  PlanRequest request{.model = of.model, .cluster = of.cluster, .strategy = "", .global_batch = of.batch};
  if (*of.stack != '\0') request.stack = of.stack;
  const Spread spread = spread_of(request, of.samples);
  ASSERT_FALSE(spread.time.empty());
  EXPECT_LT(spread.worst_memory(), of.memory);
  EXPECT_LE(spread.bound_above, 0.015);  // kSafe of the search
}

INSTANTIATE_TEST_SUITE_P(
    Models, ComposeModels,
    // The smallest networks are little beside staged buckets, which composition leaves out.
    testing::Values(Case{"t5-large", "dgx-a100:2", 64, "", 20, 0.20}, Case{"vit-b-16", "dgx-a100:2", 512, "", 20, 0.21},
                    Case{"resnet50", "dgx-a100:2", 512, "", 20, 0.17}, Case{"vgg16", "dgx-a100:2", 512, "", 20, 0.40},
                    Case{"alexnet", "p100x4:4", 512, "", 20, 0.30}, Case{"nmt", "dgx-a100:2", 512, "", 12, 0.45},
                    Case{"dlrm", "dgx-a100:2", 4096, "", 12, 0.21},
                    Case{"inception-v3", "dgx-a100:2", 512, "", 10, 0.10}),
    [](const auto& given) {
      std::string name = given.param.model;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

}  // namespace
}  // namespace weft
