#include "soap/layerwise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/random.h"
#include "cost/analytic.h"
#include "forecast/forecast.h"
#include "soap/layer_table.h"
#include "soap/layerwise_tree.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

TEST(StagePartition, IsTheBestOfAllCutsAndMeshes) {
  Rng rng(11);
  int found = 0;
  for (int i = 0; i < 200; ++i) {
    const std::size_t layers = 1 + rng.below(5);
    const int devices = static_cast<int>(1 + rng.below(6));
    const std::int64_t micro_batches = rng.between(1, 6);
    std::vector<std::int64_t> work(layers);
    for (std::int64_t& each : work) each = rng.between(1, 100);
    const std::vector<int> sizes = {1, 2, 4};
    const std::uint64_t salt = rng.next();
    PartitionProblem problem{layers, devices, sizes, micro_batches, 4, {}};
    problem.stage_time = [&](std::size_t first, std::size_t last, std::size_t mesh,
                             std::int64_t in_flight) -> std::optional<Picoseconds> {
      Picoseconds sum = 0;
      for (std::size_t l = first; l < last; ++l) sum += work[l];
      // Memory: long stages with many micro-batches in flight do not fit on few devices.
      if (static_cast<std::int64_t>(last - first) * in_flight > 4 * sizes[mesh]) return std::nullopt;
      return sum * 4 / sizes[mesh] + static_cast<Picoseconds>((salt >> (first + mesh)) % 7);
    };
    // All partitions by recursion, from the last stage, since the position from the end decides what is in flight.
    Picoseconds best = std::numeric_limits<Picoseconds>::max();
    const auto cut = [&](const auto& self, std::size_t last, int left, std::size_t stages, Picoseconds sum,
                         Picoseconds slowest) -> void {
      if (last == 0) {
        if (left == 0) best = std::min(best, sum + (micro_batches - 1) * slowest);
        return;
      }
      if (stages == 4) return;
      for (std::size_t first = 0; first < last; ++first)
        for (std::size_t mesh = 0; mesh < sizes.size(); ++mesh) {
          if (sizes[mesh] > left) continue;
          const auto flight = std::min<std::int64_t>(micro_batches, static_cast<std::int64_t>(stages + 1));
          if (const auto time = problem.stage_time(first, last, mesh, flight))
            self(self, first, left - sizes[mesh], stages + 1, sum + *time, std::max(slowest, *time));
        }
    };
    cut(cut, layers, devices, 0, 0, 0);
    const std::optional<StagePartition> partition = best_partition(problem);
    ASSERT_EQ(partition.has_value(), best != std::numeric_limits<Picoseconds>::max()) << i;
    if (!partition) continue;
    ++found;
    ASSERT_EQ(partition->step, best) << i;
  }
  EXPECT_GT(found, 100);
}

TEST(Layerwise, IsTheBestOfAllOptionsThatFit) {
  Rng rng(12);
  int found = 0, bound = 0;
  for (int i = 0; i < 200; ++i) {
    LayerTable table;
    table.layers = 1 + rng.below(4);
    const std::size_t options = 1 + rng.below(4);
    const auto cost = [&] {
      return LayerCost{rng.between(1, 100), rng.between(0, 50), Bytes{rng.between(0, 40)}, Bytes{rng.between(0, 20)}};
    };
    for (std::size_t o = 0; o < options; ++o) {
      table.options.push_back({1, 1, static_cast<int>(o), false});
      table.layer.push_back(cost());
      table.first.push_back(cost());
      table.last.push_back(cost());
      table.change.emplace_back();
      for (std::size_t p = 0; p < options; ++p) table.change.back().push_back(o == p ? 0 : rng.between(0, 30));
    }
    const StageRange range{0, table.layers, 0, rng.between(1, 3), rng.between(1, 4)};
    const Bytes limit{rng.between(50, 400)}, quantum{8};
    const auto all_of = [&](std::size_t l, std::size_t o) {
      LayerCost sum = table.layer[o];
      const auto add = [&](const LayerCost& more) {
        sum = {sum.micro_batch + more.micro_batch, sum.step + more.step, sum.states + more.states,
               sum.activations + more.activations};
      };
      if (l == 0) add(table.first[o]);
      if (l + 1 == table.layers) add(table.last[o]);
      return sum;
    };
    Picoseconds best = std::numeric_limits<Picoseconds>::max(), unlimited = best;
    std::vector<std::size_t> chosen(table.layers, 0);
    for (;;) {
      Picoseconds time = 0;
      std::int64_t quanta = 0;
      for (std::size_t l = 0; l < table.layers; ++l) {
        const LayerCost own = all_of(l, chosen[l]);
        time += own.micro_batch * range.micro_batches + own.step;
        if (l > 0) time += table.change[chosen[l - 1]][chosen[l]] * range.micro_batches;
        quanta += (own.states.value + range.in_flight * own.activations.value + 7) / 8;
      }
      unlimited = std::min(unlimited, time);
      if (quanta <= limit.value / 8) best = std::min(best, time);
      std::size_t l = 0;
      while (l < table.layers && ++chosen[l] == options) chosen[l++] = 0;
      if (l == table.layers) break;
    }
    const std::optional<LayerwisePlan> plan = best_layers(table, range, limit, quantum);
    ASSERT_EQ(best_times(table, range, limit, quantum).to_the_end, plan ? best : kNoTime) << i;
    // The same as a pipeline of one stage with all layers.
    StageRange alone = range;
    alone.in_flight = 1;
    const std::optional<LayerwisePlan> single = best_layers(table, alone, limit, quantum);
    const auto pipeline =
        best_layerwise({1, {range.micro_batches}, [&](std::int64_t) { return &table; }, limit, quantum, 1});
    ASSERT_EQ(pipeline.has_value(), single.has_value());
    if (single) {
      ASSERT_EQ(pipeline->stages.front().option, single->option);
    }
    ASSERT_EQ(plan.has_value(), best != std::numeric_limits<Picoseconds>::max()) << i;
    if (!plan) continue;
    ++found;
    bound += best > unlimited;
    ASSERT_EQ(plan->micro_batch * range.micro_batches + plan->step, best) << i;
    ASSERT_LE(plan->memory, limit);
  }
  EXPECT_GT(found, 100);
  EXPECT_GT(bound, 20);
}

TEST(Layerwise, APipelineIsWorthItWhereAStageFitsAndTheWholeDoesNot) {
  // Two equal layers of 100 bytes on two devices of 120: whole layers on one device each, 2·10 + (4 − 1)·10 = 50.
  LayerTable table;
  table.layers = 2;
  table.options = {{1, 1, 0, false}, {1, 2, 0, false}};
  table.layer = {{10, 0, Bytes{100}, {}}, {5, 0, Bytes{100}, {}}};
  table.first = table.last = {{}, {}};
  table.change = {{0, 0}, {0, 0}};
  const LayerwiseProblem problem{2, {4}, [&](std::int64_t) { return &table; }, Bytes{120}, Bytes{1}, 2};
  const std::optional<LayerwisePipeline> found = best_layerwise(problem);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->time, 50);
  EXPECT_EQ(found->cut, (std::vector<StagePartition::Stage>{{0, 1, 0}, {1, 2, 0}}));
  // Three layers: one of the stages has two and takes 20; 30 + (4 − 1)·20 = 90.
  LayerTable longer = table;
  longer.layers = 3;
  const auto three = best_layerwise({2, {4}, [&](std::int64_t) { return &longer; }, Bytes{220}, Bytes{1}, 2});
  ASSERT_TRUE(three);
  EXPECT_EQ(three->time, 90);
  // With room for both, data parallelism: 4 · 2 · 5.
  LayerwiseProblem roomy = problem;
  roomy.limit = Bytes{200};
  EXPECT_EQ(best_layerwise(roomy)->time, 40);
}

TEST(LayerTable, SumsUpToWhatTheWholeModelTakes) {
  const std::string model = "gpt2-124m:hidden=256,heads=4,vocab=1024,layers=";
  const PlanRequest words{.model = model + "6", .cluster = "dgx1-v100-32:1", .global_batch = 8, .seq = 128};
  const auto job = std::make_shared<const TrainingJob>(settle(words).value());
  const Result<LayerTable> table = make_layer_table({job, AnalyticCost(job->stack), 2}, 2);
  ASSERT_TRUE(table.ok()) << table.error().message;
  ASSERT_EQ(table->layers, 6u);
  // On one device 2: whether to recompute. On two: tp=2, or dp=2 with ZeRO 0, 1 or 3, each with and without.
  ASSERT_EQ(table->options.size(), 10u);
  for (std::size_t o = 0; o + 1 < table->options.size(); o += 2) {
    EXPECT_FALSE(table->options[o].recompute);
    EXPECT_TRUE(table->options[o + 1].recompute);
    EXPECT_LT(table->layer[o].micro_batch, table->layer[o + 1].micro_batch) << print(table->options[o]);
    EXPECT_GT(table->layer[o].activations, table->layer[o + 1].activations) << print(table->options[o]);
  }
  // Six layers of one option, two micro-batches: the sum of the table against the forecast of the whole model.
  for (std::size_t o = 0; o < table->options.size(); ++o) {
    const LayerOption& option = table->options[o];
    const LayerCost &layer = table->layer[o], &last = table->last[o];
    const double sum = static_cast<double>(6 * (2 * layer.micro_batch + layer.step) + 2 * last.micro_batch + last.step);
    PlanRequest plan = words;
    plan.strategy = fmt::format("tp={},dp={},zero={}{}", option.tp, option.dp, option.zero,
                                option.recompute ? ",recompute=full" : "");
    plan.micro_batch = 4 / option.dp;
    for (std::int64_t i = 0; i < option.devices(); ++i) plan.devices.push_back(i);
    const Plan made = make_plan(plan).value();
    const double whole = static_cast<double>(forecast(made, AnalyticCost(made.stack())).value().step);
    EXPECT_NEAR(sum / whole, 1, 0.05) << print(option);
  }
}

// As `weft simulate --strategy` simulates a file.
double simulated(const PlanRequest& request, const Strategy& tree) {
  const std::string file = testing::TempDir() + "layerwise.yaml";
  std::ofstream(file) << to_yaml(tree);
  PlanRequest plan = request;
  plan.strategy = file;
  const Plan made = make_plan(plan).value();
  return static_cast<double>(forecast(made, AnalyticCost(made.stack())).value().step);
}

TEST(LayerwiseTree, WhatATreeCanSayTakesAsLongAsWasSummed) {
  const PlanRequest words{.model = "gpt2-124m:hidden=256,heads=4,vocab=1024,layers=6",
                          .cluster = "dgx1-v100-32:1",
                          .global_batch = 16,
                          .seq = 128,
                          // At the fp32 rate of a V100 even this small network is bound by computing, which is summed.
                          .dtype = "bf16",
                          .devices = {0, 1, 2, 3}};
  const auto job = std::make_shared<const TrainingJob>(settle(words).value());
  std::map<std::int64_t, LayerTable> tables;
  for (std::int64_t m : {2, 8}) tables.emplace(m, make_layer_table({job, AnalyticCost(job->stack)}, m).value());
  const Graph graph = build_model(words.model, {.batch = 1, .seq = 128}).value();
  std::set<std::string> plans;
  // With less memory more has to be sharded, recomputed or divided into stages.
  for (std::int64_t megabytes : {4000, 80, 60, 50, 40, 30}) {
    const std::optional<ExpressiblePlan> expressible = best_expressible(
        {4, {2, 8}, [&](std::int64_t m) { return &tables.at(m); }, Bytes{megabytes << 20}, Bytes{1 << 18}, 4});
    if (!expressible) continue;
    const Result<Strategy> tree =
        to_tree(expressible->pipeline, expressible->tables.at(expressible->pipeline.micro_batches), graph);
    ASSERT_TRUE(tree.ok()) << tree.error().message;
    plans.insert(to_yaml(*tree));
    EXPECT_NEAR(static_cast<double>(expressible->pipeline.time) / simulated(words, *tree), 1, 0.15) << megabytes;
  }
  EXPECT_GE(plans.size(), 4u);
}

TEST(LayerwiseTree, WhatATreeHasNoWordsForIsTold) {
  LayerTable table;
  table.layers = 2;
  table.options = {{1, 2, 1, false}, {1, 2, 3, false}, {2, 1, 0, false}};
  const Graph graph = build_model("gpt2-124m:layers=2,hidden=64,heads=4,vocab=128", {.batch = 1, .seq = 8}).value();
  const auto fault = [&](std::vector<std::size_t> options) {
    LayerwisePipeline pipeline;
    pipeline.stages = {{std::move(options), 0, 0, {}}};
    const Result<Strategy> tree = to_tree(pipeline, table, graph);
    return tree.ok() ? "" : tree.error().message;
  };
  EXPECT_EQ(fault({0, 0}), "");
  EXPECT_EQ(fault({0, 1}), "layer 1: zero=3, others zero=1; a strategy tree has one for all");
  EXPECT_EQ(fault({0, 2}),
            "layer 1: [tp=2 dp=1] in a stage of [tp=1 dp=2 zero=1]; a stage of a strategy tree has one mesh");
}

TEST(LayerTable, ABatchThatDoesNotDivideIsTold) {
  const auto job = std::make_shared<const TrainingJob>(
      settle({.model = "gpt2-124m", .cluster = "p100x4:1", .global_batch = 8}).value());
  const Result<LayerTable> table = make_layer_table({job, AnalyticCost(job->stack)}, 3);
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.error().message, "8 samples do not divide into 3 micro-batches");
}

}  // namespace
}  // namespace weft
