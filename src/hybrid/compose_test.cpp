// Composition against the simulator: time and memory of the same plans by both.
#include "hybrid/compose.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "cost/analytic.h"
#include "hybrid/hybrid_space.h"
#include "problem/judge.h"

namespace weft {
namespace {

struct Errors {
  std::vector<double> time, memory;
  std::string worst;
  double bound_above = 0;  // by how much a bound exceeds its simulated time, at most
};

bool all_plans(const HybridPlan&) { return true; }

// A random sample of a problem's plans.
void compare(const PlanRequest& request, int samples, Errors& errors, const SpaceOptions& options = {},
             bool (*wanted)(const HybridPlan&) = all_plans) {
  const Result<PlanProblem> problem = pose(request);
  ASSERT_TRUE(problem.ok()) << problem.error().message;
  ASSERT_TRUE(problem->layers.simple);
  const AnalyticCost cost(problem->stack());
  Composer composer(*problem, cost);
  HybridSpace space = enumerate_space(*problem, options);
  std::erase_if(space.plans, [&](const HybridPlan& plan) { return !wanted(plan); });
  Rng rng(20240229);
  for (int i = 0; i < samples; ++i) {
    const HybridPlan& plan = space.plans[rng.below(space.plans.size())];
    composer.prepare({&plan, 1}, 1);
    const std::optional<Composition> made = composer.compose(plan);
    const std::string strategy = print(shorthand_of(parallelism_of(plan, problem->layers)));
    const Result<Judged> judged =
        judge_strategy(*problem, cost, choose_strategy(parallelism_of(plan, problem->layers)));
    ASSERT_EQ(made.has_value(), judged.ok()) << strategy << "\n" << (judged.ok() ? "" : judged.error().message);
    if (!made) continue;
    const double time = made->step_s / judged->forecast.step_s - 1;
    const auto held = static_cast<double>(judged->forecast.fullest()->device_total.value);
    const double memory = static_cast<double>(made->memory) / held - 1;
    if (errors.time.empty() || std::abs(time) > *std::max_element(errors.time.begin(), errors.time.end()))
      errors.worst = fmt::format("{} {}: {:+.2f} %", request.model, strategy, 100 * time);
    errors.time.push_back(std::abs(time));
    errors.memory.push_back(std::abs(memory));
    const double above = made->bound_s / judged->forecast.step_s - 1;
    errors.bound_above = std::max(errors.bound_above, above);
    // A bound from one probe of the largest micro-batch holds for every plan of the shape.
    const HybridPlan relaxed = Composer::relaxed(plan, 16);
    composer.prepare({&relaxed, 1}, 1);
    EXPECT_LT(composer.bound(plan, 16).value_or(0), 1.02 * judged->forecast.step_s) << strategy;
    if (above > 0.002) fmt::print("  {} {}: bound {:+.2f} %\n", request.model, strategy, 100 * above);
    if (std::abs(time) > 0.05 || std::abs(memory) > 0.05)
      fmt::print("  {} {}: time {:+.2f} %, memory {:+.2f} %\n", request.model, strategy, 100 * time, 100 * memory);
  }
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

TEST(Compose, AgreesWithTheSimulatorOnRandomPlans) {
  Errors errors;
  compare({.model = "llama3-8b", .cluster = "dgx-h100:4", .strategy = "", .global_batch = 64, .seq = 8192}, 30, errors);
  compare({.model = "gpt3-13b", .cluster = "dgx-a100:4", .strategy = "", .global_batch = 96, .seq = 2048}, 25, errors);
  compare({.model = "mixtral-8x7b", .cluster = "dgx-h100:4", .strategy = "", .global_batch = 64, .seq = 4096}, 20,
          errors);
  compare({.model = "llama3-8b", .cluster = "dgx-h100:2", .strategy = "", .global_batch = 32, .stack = "pytorch-fsdp"},
          15, errors);
  // Four devices of every node; a framework that keeps flat copies.
  PlanRequest some{.model = "gpt3-1.3b",
                   .cluster = "dgx-a100:4",
                   .strategy = "",
                   .global_batch = 64,
                   .seq = 2048,
                   .stack = "megatron-deepspeed"};
  for (std::int64_t rank = 0; rank < 16; ++rank) some.devices.push_back(rank / 4 * 8 + rank % 4);
  compare(some, 15, errors);
  // Split backward passes.
  const SpaceOptions split{.schedules = {PlanSchedule::GPipe, PlanSchedule::ZeroBubbleH1, PlanSchedule::ZeroBubbleV}};
  compare({.model = "gpt3-13b", .cluster = "dgx-a100:2", .strategy = "", .global_batch = 64, .seq = 2048}, 30, errors,
          split);
  compare({.model = "mixtral-8x7b", .cluster = "dgx-h100:2", .strategy = "", .global_batch = 64, .seq = 4096}, 15,
          errors, split, [](const HybridPlan& plan) { return plan.pp > 1; });
  // Hybrid sharding: copies on groups of nodes.
  SpaceOptions spread{.zero = {3}};
  spread.most_tensor = 2;
  compare({.model = "llama3-8b", .cluster = "dgx-h100:8", .strategy = "", .global_batch = 128, .stack = "maxtext"}, 15,
          errors, spread);
  // Sharded weights are gathered in every micro-batch: with and without prefetching, with and without overlap, and with
  // expert-parallel communication over the same links.
  const SpaceOptions units{.schedules = {PlanSchedule::OneForwardOneBackward}, .zero = {2, 3}};
  compare({.model = "mixtral-8x7b", .cluster = "dgx-h100:4", .strategy = "", .global_batch = 64, .seq = 4096}, 30,
          errors, units);
  compare({.model = "deepseek-v3", .cluster = "hgx-h800:16", .strategy = "", .global_batch = 512, .seq = 4096}, 8,
          errors, units,
          [](const HybridPlan& plan) { return plan.zero == 3 && plan.micro_batch <= 8 && plan.micro_batches <= 8; });
  for (const char* stack : {"megatron-lm", "pytorch-fsdp", "torchtitan", "nanotron", "megatron-lm-b200", "pax"})
    compare({.model = "llama3-8b", .cluster = "dgx-h100:4", .strategy = "", .global_batch = 64, .stack = stack}, 8,
            errors, units, [](const HybridPlan& plan) { return plan.zero == 3; });
  ASSERT_GT(errors.time.size(), 200u);
  fmt::print(
      "composition against simulation, {} plans: time median {:.2f} %, 90 of 100 within {:.2f} %, worst {:.2f} % "
      "({})\n",
      errors.time.size(), 100 * quantile(errors.time, 0.5), 100 * quantile(errors.time, 0.9),
      100 * quantile(errors.time, 1), errors.worst);
  fmt::print(
      "  memory median {:.2f} %, 90 of 100 within {:.2f} %, worst {:.2f} %; bound above its plan by at most {:.2f} %\n",
      100 * quantile(errors.memory, 0.5), 100 * quantile(errors.memory, 0.9), 100 * quantile(errors.memory, 1),
      100 * errors.bound_above);
  EXPECT_LT(quantile(errors.time, 0.5), 0.01);
  EXPECT_LT(quantile(errors.time, 0.9), 0.04);
  EXPECT_LT(quantile(errors.time, 1), 0.08);
  EXPECT_LT(quantile(errors.memory, 0.5), 0.01);
  EXPECT_LT(quantile(errors.memory, 0.9), 0.03);
  EXPECT_LT(quantile(errors.memory, 1), 0.13);
  EXPECT_LT(errors.bound_above, 0.015);  // kSafe of the search
}

// With expert parallelism, experts are gathered while attention is computed: ZeRO-3 does not wait for all of a layer.
TEST(Compose, TheBoundOfExpertsSpreadByThemselvesHolds) {
  const Result<PlanProblem> problem =
      pose({.model = "mixtral-8x7b", .cluster = "dgx-h100:4", .strategy = "", .global_batch = 64, .seq = 4096});
  ASSERT_TRUE(problem.ok()) << problem.error().message;
  const AnalyticCost cost(problem->stack());
  Composer composer(*problem, cost);
  const HybridPlan plan{
      .tp = 8, .ep = 2, .dp = 4, .micro_batch = 16, .zero = 3, .sequence_parallel = true, .recompute = {}};
  composer.prepare({&plan, 1}, 1);
  const std::optional<Composition> made = composer.compose(plan);
  const Result<Judged> judged = judge_strategy(*problem, cost, choose_strategy(parallelism_of(plan, problem->layers)));
  ASSERT_TRUE(made && judged.ok());
  EXPECT_LE(made->bound_s, judged->forecast.step_s);
}

// All factorisations 16 = tp · pp · dp of a network whose layers end in an all-reduce in backward and whose embedding
// is tied to its head, over slow links (Lu et al., CF'23): composition ranks them as simulation does.
TEST(Compose, OrdersPlansOfBertAsTheSimulatorDoes) {
  const Result<PlanProblem> problem =
      pose({.model = "bert-large:layers=48", .cluster = "a40x4:4", .strategy = "", .global_batch = 16, .seq = 512});
  ASSERT_TRUE(problem.ok()) << problem.error().message;
  const AnalyticCost cost(problem->stack());
  Composer composer(*problem, cost);
  std::vector<std::pair<double, double>> times;
  for (std::int32_t tp = 1; tp <= 16; tp *= 2)
    for (std::int32_t pp = 1; tp * pp <= 16; pp *= 2) {
      const HybridPlan plan{.tp = tp, .pp = pp, .dp = 16 / tp / pp, .micro_batches = tp * pp};
      const std::string strategy = print(shorthand_of(parallelism_of(plan, problem->layers)));
      composer.prepare({&plan, 1}, 1);
      const std::optional<Composition> made = composer.compose(plan);
      const Result<Judged> judged =
          judge_strategy(*problem, cost, choose_strategy(parallelism_of(plan, problem->layers)));
      ASSERT_TRUE(made && judged.ok()) << strategy;
      times.emplace_back(judged->forecast.step_s, made->step_s);
      EXPECT_NEAR(times.back().second / times.back().first, 1, 0.05) << strategy;
    }
  std::sort(times.begin(), times.end());
  constexpr double kTie = 1.02;  // nearer than that nothing is said of the order
  for (std::size_t i = 1; i < times.size(); ++i)
    EXPECT_TRUE(times[i].first < kTie * times[i - 1].first || times[i - 1].second <= times[i].second) << i;
}

// The order of the menu holds for every shape: a set that saves fewer bytes in it needs less memory, and time.
TEST(Compose, TheSetsOfTheMenuTradeMemoryForTime) {
  for (const PlanRequest& request :
       {PlanRequest{.model = "llama3-8b", .cluster = "dgx-h100:2", .strategy = "", .global_batch = 64, .seq = 8192},
        PlanRequest{.model = "gpt3-13b", .cluster = "dgx-a100:2", .strategy = "", .global_batch = 64, .seq = 2048},
        PlanRequest{
            .model = "mixtral-8x7b", .cluster = "dgx-h100:2", .strategy = "", .global_batch = 64, .seq = 4096}}) {
    const Result<PlanProblem> problem = pose(request);
    ASSERT_TRUE(problem.ok()) << problem.error().message;
    const AnalyticCost cost(problem->stack());
    Composer composer(*problem, cost);
    const std::vector<PlanRecompute> sets = recomputations(*problem, {});
    ASSERT_GT(sets.size(), 4u) << request.model;
    HybridSpace space = enumerate_space(*problem, {.recompute = {PlanRecompute::None}, .most_micro_batch = 16});
    // With ZB-H2 so many gradients of weights wait that the inputs of what is computed again are more than it frees.
    std::erase_if(space.plans, [](const HybridPlan& plan) { return plan.schedule == PlanSchedule::ZeroBubbleH2; });
    Rng rng(20240301);
    std::size_t composed = 0;
    for (int i = 0; i < 6; ++i) {
      HybridPlan plan = space.plans[rng.below(space.plans.size())];
      std::vector<HybridPlan> relatives;
      for (const PlanRecompute set : sets) {
        plan.recompute = set;
        relatives.push_back(plan);
      }
      composer.prepare(relatives, 1);
      std::optional<Composition> before;
      for (const HybridPlan& each : relatives) {
        const std::optional<Composition> made = composer.compose(each);
        if (!made) break;  // does not compile: more parts than groups of keys and values
        ++composed;
        if (before) {
          const std::string strategy = request.model + " " + print(shorthand_of(parallelism_of(each, problem->layers)));
          // Between two neighbours a shape may differ by what it communicates, and a split backward pass holds the
          // gathered inputs of products that it computes again; never by much.
          EXPECT_LT(made->memory, 1.04 * static_cast<double>(before->memory)) << strategy;
          EXPECT_GT(made->step_s, 0.97 * before->step_s) << strategy;
        }
        before = made;
      }
    }
    EXPECT_GE(composed, 3 * sets.size()) << request.model;
  }
}

// A rule that asked for the name of a type, not for the type, composed the two names of fp32 to 1.541 s and 1.403 s.
TEST(Compose, TwoNamesOfOneNumberTypeGiveOneTime) {
  const auto composed = [](const char* dtype) {
    const PlanProblem problem = pose({.model = "gpt3-1.3b",
                                      .cluster = "a40x4:4",
                                      .global_batch = 64,
                                      .seq = 2048,
                                      .dtype = dtype,
                                      .stack = "pytorch-fsdp"})
                                    .value();
    const AnalyticCost cost(problem.stack());
    Composer composer(problem, cost);
    const HybridPlan plan{.dp = 16, .micro_batch = 1, .micro_batches = 4, .zero = 3};
    composer.prepare({&plan, 1}, 1);
    return composer.compose(plan).value();
  };
  const Composition one = composed("fp32"), other = composed("float32");
  EXPECT_EQ(one.step_s, other.step_s);
  EXPECT_EQ(one.memory, other.memory);
}

}  // namespace
}  // namespace weft
