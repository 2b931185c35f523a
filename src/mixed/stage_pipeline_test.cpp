// The dynamic programme over layers and groups against trying every pipeline.
#include "mixed/stage_pipeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "base/random.h"

namespace weft {
namespace {

using Stages = std::vector<StagePipeline::Stage>;

// Every order of groups and every cut of the layers, with the objective as the header states it.
struct Everything {
  const StagePipelineProblem& problem;
  double best = kNoPipeline;
  std::int64_t pipelines = 0;

  void run() {
    Stages stages;
    std::vector<std::int64_t> left = problem.most;
    from(0, stages, left);
  }
  void from(std::int64_t layer, Stages& stages, std::vector<std::int64_t>& left) {
    if (layer == problem.layers) {
      ++pipelines;
      best = std::min(best, seconds(stages));
      return;
    }
    for (std::size_t kind = 0; kind < left.size(); ++kind) {
      if (left[kind] == 0) continue;
      --left[kind];
      for (std::int64_t count = 1; layer + count <= problem.layers; ++count) {
        stages.push_back({kind, layer, count});
        from(layer + count, stages, left);
        stages.pop_back();
      }
      ++left[kind];
    }
  }
  double seconds(const Stages& stages) const {
    const std::size_t p = stages.size();
    std::vector<double> t(p), x(p, 0);
    for (std::size_t i = 0; i < p; ++i) {
      t[i] = problem.stage(stages[i].kind, stages[i].first, stages[i].count, static_cast<std::int64_t>(p - i));
      if (i + 1 < p) x[i] = problem.transfer(stages[i].kind, stages[i + 1].kind);
    }
    double cycle = 0, all = 0;
    for (std::size_t i = 0; i < p; ++i) {
      all += t[i] + 2 * x[i];
      double rest = 0;
      for (std::size_t j = i; j < p; ++j) rest += t[j] + 2 * x[j];
      cycle = std::max(cycle, t[i]);
      if (static_cast<std::int64_t>(p - i) <= problem.micro_batches)
        cycle = std::max(cycle, rest / static_cast<double>(p - i));
    }
    return static_cast<double>(problem.micro_batches - 1) * cycle + all;
  }
};

// Times of any shape: by kind, layers and place, some of which do not fit, deeper ones (more in flight) more often.
struct RandomChain {
  StagePipelineProblem problem;
  std::map<std::tuple<std::size_t, std::int64_t, std::int64_t, std::int64_t>, double> times;

  explicit RandomChain(Rng& rng) {
    problem.layers = rng.between(1, 6);
    const std::int64_t kinds = rng.between(1, 3);
    for (std::int64_t k = 0; k < kinds; ++k) problem.most.push_back(rng.between(1, kinds == 3 ? 2 : 3));
    problem.micro_batches = rng.between(1, 9);
    std::int64_t stages = 0;
    for (std::int64_t most : problem.most) stages += most;
    std::vector<double> layer;
    for (std::int64_t i = 0; i < problem.layers; ++i) layer.push_back(static_cast<double>(rng.between(1, 20)));
    const auto holds = static_cast<std::int64_t>(rng.between(3, 30));
    for (std::size_t k = 0; k < problem.most.size(); ++k) {
      const auto slow = static_cast<double>(rng.between(1, 4));
      problem.least_per_layer.push_back(kNoPipeline);
      for (std::int64_t first = 0; first < problem.layers; ++first)
        for (std::int64_t count = 1; first + count <= problem.layers; ++count)
          for (std::int64_t end = 1; end <= stages; ++end) {
            double time = static_cast<double>(rng.between(0, 5));
            for (std::int64_t i = first; i < first + count; ++i) time += slow * layer[static_cast<std::size_t>(i)];
            problem.least_per_layer.back() =
                std::min(problem.least_per_layer.back(), time / static_cast<double>(count));
            if (count * std::min(end, problem.micro_batches) > holds || rng.below(12) == 0) time = kNoPipeline;
            times[{k, first, count, end}] = time;
          }
      if (rng.below(3) == 0) problem.least_per_layer.back() = 0;  // unknown
    }
    problem.stage = [this](std::size_t kind, std::int64_t first, std::int64_t count, std::int64_t end) {
      return times.at({kind, first, count, end});
    };
    std::vector<double> sent;
    for (std::size_t i = 0; i < 9; ++i) sent.push_back(static_cast<double>(rng.between(0, 8)));
    problem.transfer = [sent](std::size_t from, std::size_t to) { return sent[3 * from + to]; };
  }
  RandomChain(const RandomChain&) = delete;
};

TEST(StagePipeline, IsTheBestOfEverythingInThreeHundredRandomProblems) {
  Rng rng(7);
  int feasible = 0, several_kinds = 0, leaves_out = 0;
  std::int64_t tried = 0;
  for (int i = 0; i < 300; ++i) {
    RandomChain chain(rng);
    Everything everything{chain.problem};
    everything.run();
    tried += everything.pipelines;
    const std::optional<StagePipeline> found = best_pipeline(chain.problem);
    ASSERT_EQ(found.has_value(), everything.best != kNoPipeline) << i;
    if (!found) continue;
    ++feasible;
    // Times are whole numbers divided by numbers of stages: sums in another order differ in the last bits only.
    EXPECT_NEAR(found->seconds, everything.best, 1e-9 * everything.best) << i;
    EXPECT_NEAR(pipeline_seconds(chain.problem, found->stages), found->seconds, 1e-9 * found->seconds) << i;
    EXPECT_NEAR(everything.seconds(found->stages), found->seconds, 1e-9 * found->seconds) << i;
    std::vector<std::int64_t> used(chain.problem.most.size(), 0);
    std::int64_t next = 0;
    for (const auto& stage : found->stages) {
      EXPECT_EQ(stage.first, next);
      next += stage.count;
      ++used[stage.kind];
    }
    EXPECT_EQ(next, chain.problem.layers);
    int kinds = 0;
    for (std::size_t k = 0; k < used.size(); ++k) {
      EXPECT_LE(used[k], chain.problem.most[k]);
      kinds += used[k] > 0;
    }
    several_kinds += kinds > 1;
    leaves_out += used != chain.problem.most;
    // A threshold just above the best finds it, one at the best finds nothing.
    EXPECT_TRUE(best_pipeline(chain.problem, everything.best * 1.001 + 1e-6).has_value()) << i;
    EXPECT_FALSE(best_pipeline(chain.problem, everything.best * 0.999).has_value()) << i;
  }
  fmt::print("{} of 300 feasible, {} of several kinds, {} leave groups out; {} pipelines tried\n", feasible,
             several_kinds, leaves_out, tried);
  EXPECT_GT(feasible, 200);
  EXPECT_GT(several_kinds, 60);
  EXPECT_GT(leaves_out, 60);
}

// Two layers a second each on a fast group, three seconds each on a slow one, many micro-batches: 3 + 1 layers take
// 3 s a micro-batch on either; the fast one alone takes 4.
TEST(StagePipeline, GivesLayersInProportionToSpeed) {
  StagePipelineProblem problem{.layers = 4, .most = {1, 1}, .micro_batches = 100, .stage = {}, .transfer = {}};
  problem.stage = [](std::size_t kind, std::int64_t, std::int64_t count, std::int64_t) {
    return static_cast<double>(count) * (kind == 0 ? 1 : 3);
  };
  problem.transfer = [](std::size_t, std::size_t) { return 0.0; };
  const StagePipeline found = best_pipeline(problem).value();
  ASSERT_EQ(found.stages.size(), 2u);
  for (const auto& stage : found.stages) EXPECT_EQ(stage.count, stage.kind == 0 ? 3 : 1);
  EXPECT_DOUBLE_EQ(found.seconds, 99 * 3 + 6);
  // Links so slow that one way there and back, 4 s + 2 · 10 s over two micro-batches in flight, is worse than 4 s alone.
  problem.transfer = [](std::size_t, std::size_t) { return 10.0; };
  EXPECT_EQ(best_pipeline(problem).value().stages.size(), 1u);
}

}  // namespace
}  // namespace weft
