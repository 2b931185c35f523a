#include "synthesis/ratios.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "synthesis/linear_program.h"

namespace weft {
namespace {

// Two groups of devices in one segment: n₀·x + n₁·y = 1. Stages, a padded communication and a limit of memory.
RatioProblem random_problem(Rng& rng) {
  RatioProblem problem;
  problem.constant = rng.uniform();
  problem.shares = {{0, static_cast<double>(rng.between(1, 4)), 0, 1},
                    {0, static_cast<double>(rng.between(1, 4)), 0, 1}};
  problem.padded = {rng.below(2) == 0 ? 0 : rng.uniform()};
  for (std::uint64_t stage = 0; stage < 1 + rng.below(4); ++stage)
    problem.stages.push_back(
        {{0.1 * rng.uniform(), {{0, 3 * rng.uniform()}}}, {0.1 * rng.uniform(), {{1, 3 * rng.uniform()}}}});
  if (rng.below(2) == 0) {
    problem.memory.push_back({{1, {{0, 10}}}, 1 + 10 * rng.uniform()});
    problem.memory.push_back({{1, {{1, 10}}}, 1 + 10 * rng.uniform()});
  }
  return problem;
}

// x over a grid of ten thousand values, y by the sum.
TEST(BestRatios, AreThoseOfADenseGrid) {
  int solved = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    Rng rng = Rng(30).split(i);
    const RatioProblem problem = random_problem(rng);
    double least = kUnbounded;
    constexpr int kGrid = 10000;
    for (int g = 0; g <= kGrid; ++g) {
      const double x = static_cast<double>(g) / kGrid / problem.shares[0].count;
      const double y = (1 - problem.shares[0].count * x) / problem.shares[1].count;
      if (y >= -1e-12 && problem.fits({x, y})) least = std::min(least, problem.cost({x, y}));
    }
    const Result<std::vector<double>> best = best_ratios(problem);
    if (!best.ok()) {
      EXPECT_EQ(least, kUnbounded) << i;
      continue;
    }
    ++solved;
    EXPECT_NEAR((*best)[0] * problem.shares[0].count + (*best)[1] * problem.shares[1].count, 1, 1e-9);
    EXPECT_TRUE(problem.fits(*best)) << i;
    EXPECT_LE(problem.cost(*best), least + 1e-9) << i;
    if (least < kUnbounded) {
      EXPECT_NEAR(problem.cost(*best), least, 1e-3 * least) << i;
    }
  }
  EXPECT_GT(solved, 120);
}

// Three groups, two segments that are independent but for one stage.
TEST(BestRatios, OfTwoSegmentsAreThoseOfAGridToo) {
  for (std::uint64_t i = 0; i < 20; ++i) {
    Rng rng = Rng(31).split(i);
    RatioProblem problem;
    problem.constant = rng.uniform();
    problem.shares = {{0, 1, 0, 1}, {0, 1, 0, 1}, {1, 1, 0, 1}, {1, 1, 0, 1}};
    problem.padded = {rng.uniform(), rng.uniform()};
    const auto slope = [&] { return 3 * rng.uniform(); };
    problem.stages = {{{0, {{0, slope()}, {2, slope()}}}, {0, {{1, slope()}, {3, slope()}}}},
                      {{0.1, {{0, slope()}}}, {0.1, {{1, slope()}}}},
                      {{0, {{2, slope()}}}, {0.2, {{3, slope()}}}}};
    double least = kUnbounded;
    constexpr int kGrid = 500;
    for (int x = 0; x <= kGrid; ++x)
      for (int y = 0; y <= kGrid; ++y) {
        const double a = static_cast<double>(x) / kGrid, b = static_cast<double>(y) / kGrid;
        least = std::min(least, problem.cost({a, 1 - a, b, 1 - b}));
      }
    const Result<std::vector<double>> best = best_ratios(problem);
    ASSERT_TRUE(best.ok());
    EXPECT_LE(problem.cost(*best), least + 1e-9);
    EXPECT_NEAR(problem.cost(*best), least, 1e-2 * least);
  }
}

// Nothing fits: 2 devices of capacity 3 for 10 in all.
TEST(BestRatios, SayWhenNoSharesFit) {
  RatioProblem problem;
  problem.shares = {{0, 1, 0, 1}, {0, 1, 0, 1}};
  problem.padded = {0};
  problem.stages = {{{0, {{0, 1}}}, {0, {{1, 1}}}}};
  problem.memory = {{{0, {{0, 10}}}, 3}, {{0, {{1, 10}}}, 3}};
  EXPECT_FALSE(best_ratios(problem).ok());
}

}  // namespace
}  // namespace weft
