#include "soap/elimination.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace weft {
namespace {

ChoiceProblem random_problem(Rng& rng, bool limited) {
  ChoiceProblem problem;
  const std::size_t variables = 2 + rng.below(6);
  for (std::size_t v = 0; v < variables; ++v) {
    std::vector<ChoiceProblem::Option> options(1 + rng.below(4));
    for (auto& option : options) option = {rng.between(0, 50), static_cast<std::int32_t>(rng.between(0, 8))};
    problem.own.push_back(std::move(options));
  }
  for (std::size_t a = 0; a < variables; ++a)
    for (std::size_t b = 0; b < variables; ++b) {
      if (a == b || rng.below(3) != 0) continue;
      std::vector<std::int64_t> table(problem.own[VariableId(a)].size() * problem.own[VariableId(b)].size());
      for (std::int64_t& cost : table) cost = rng.below(12) == 0 ? kNever : rng.between(0, 50);
      problem.pairs.push_back({VariableId(a), VariableId(b), problem.tables.size()});
      problem.tables.push_back(std::move(table));
    }
  if (limited) problem.memory_limit = static_cast<std::int32_t>(rng.between(0, 5 * static_cast<int>(variables)));
  return problem;
}

// Every combination of options.
std::int64_t brute_force(const ChoiceProblem& problem) {
  std::vector<std::uint32_t> option(problem.own.size(), 0);
  std::int64_t best = kNever;
  for (;;) {
    const ChoiceProblem::Option judged = judge_choice(problem, option);
    if (!problem.memory_limit || judged.memory <= *problem.memory_limit) best = std::min(best, judged.cost);
    std::size_t v = 0;
    while (v < option.size() && ++option[v] == problem.own[VariableId(v)].size()) option[v++] = 0;
    if (v == option.size()) return best;
  }
}

// Metropolis over the same objective: one variable at a time, temperature a tenth of the cost.
std::int64_t metropolis(const ChoiceProblem& problem, Rng& rng) {
  std::vector<std::uint32_t> option(problem.own.size(), 0);
  std::int64_t now = kNever, best = kNever;
  for (int i = 0; i < 300; ++i) {
    std::vector<std::uint32_t> next = option;
    const VariableId v(rng.below(problem.own.size()));
    next[v.index()] = static_cast<std::uint32_t>(rng.below(problem.own[v].size()));
    const ChoiceProblem::Option judged = judge_choice(problem, next);
    if (problem.memory_limit && judged.memory > *problem.memory_limit) continue;
    if (static_cast<double>(judged.cost) > static_cast<double>(now) * (1 - 0.1 * std::log(1 - rng.uniform()))) continue;
    option = std::move(next);
    best = std::min(best, now = judged.cost);
  }
  return best;
}

TEST(Elimination, FindsWhatBruteForceFindsAndNoOtherSearchFindsLess) {
  Rng rng(7);
  int feasible = 0, limits_bound = 0;
  for (int i = 0; i < 500; ++i) {
    const ChoiceProblem problem = random_problem(rng, i % 2 == 1);
    const Assignment chosen = choose_best(problem);
    ASSERT_TRUE(chosen.exact);
    ASSERT_EQ(chosen.cost, brute_force(problem)) << i;
    ASSERT_LE(chosen.cost, metropolis(problem, rng));
    std::vector<std::uint32_t> climbed(problem.own.size(), 0);
    improve_choice(problem, climbed);
    const ChoiceProblem::Option judged = judge_choice(problem, climbed);
    if (!problem.memory_limit || judged.memory <= *problem.memory_limit) {
      ASSERT_LE(chosen.cost, judged.cost);
    }
    if (chosen.option.empty()) continue;
    ++feasible;
    ASSERT_EQ(judge_choice(problem, chosen.option).cost, chosen.cost);
    if (!problem.memory_limit) continue;
    ASSERT_LE(chosen.memory, *problem.memory_limit);
    ChoiceProblem unlimited = problem;
    unlimited.memory_limit.reset();
    limits_bound += choose_best(unlimited).cost < chosen.cost;
  }
  EXPECT_GT(feasible, 300);
  EXPECT_GT(limits_bound, 30);
}

TEST(Elimination, BoundsWhatItCannotHold) {
  Rng rng(8);
  int cut = 0;
  for (int i = 0; i < 200; ++i) {
    const ChoiceProblem problem = random_problem(rng, i % 2 == 1);
    const Assignment chosen = choose_best(problem, {.most_entries = 4});
    const std::int64_t best = brute_force(problem);
    ASSERT_LE(chosen.lower_bound, best) << i;
    ASSERT_GE(chosen.cost, best) << i;
    cut += !chosen.exact;
  }
  EXPECT_GT(cut, 50);
}

TEST(Elimination, FindsEqualLayersOnce) {
  // A chain of 100 layers of three variables each, all with the same tables: every round eliminates every second
  // variable, with the same six tables apart from the ends; 300 variables are halved 9 times.
  Rng rng(9);
  ChoiceProblem problem;
  const auto table = [&] {
    std::vector<std::int64_t> costs(16);
    for (std::int64_t& cost : costs) cost = rng.between(1, 100);
    return costs;
  };
  problem.tables = {table(), table(), table()};
  const int layers = 100;
  std::vector<ChoiceProblem::Option> own{{3, 0}, {1, 0}, {4, 0}, {1, 0}};
  for (int i = 0; i < 3 * layers; ++i) problem.own.push_back(own);
  for (std::size_t i = 0; i < static_cast<std::size_t>(layers); ++i) {
    problem.pairs.push_back({VariableId(3 * i), VariableId(3 * i + 1), 0});
    problem.pairs.push_back({VariableId(3 * i + 1), VariableId(3 * i + 2), 1});
    if (i + 1 < static_cast<std::size_t>(layers))
      problem.pairs.push_back({VariableId(3 * i + 2), VariableId(3 * i + 3), 2});
  }
  const Assignment chosen = choose_best(problem);
  EXPECT_TRUE(chosen.exact);
  EXPECT_EQ(chosen.eliminations, 3 * layers);
  EXPECT_LT(chosen.distinct, 9 * 8);
  std::vector<std::uint32_t> climbed(problem.own.size(), 0);
  improve_choice(problem, climbed);
  EXPECT_LE(chosen.cost, judge_choice(problem, climbed).cost);
}

// Sixteen variables of sixteen options, each paired with all others, under a limit on memory: tables of a million fronts.
TEST(Elimination, AnswersACancellation) {
  Rng rng(3);
  ChoiceProblem problem;
  for (int v = 0; v < 16; ++v) {
    std::vector<ChoiceProblem::Option> options(16);
    for (auto& option : options) option = {rng.between(0, 50), static_cast<std::int32_t>(rng.between(0, 100))};
    problem.own.push_back(std::move(options));
  }
  for (std::size_t a = 0; a < 16; ++a)
    for (std::size_t b = a + 1; b < 16; ++b) {
      std::vector<std::int64_t> table(256);
      for (std::int64_t& cost : table) cost = rng.between(0, 50);
      problem.pairs.push_back({VariableId(a), VariableId(b), problem.tables.size()});
      problem.tables.push_back(std::move(table));
    }
  problem.memory_limit = 200;
  const std::atomic<bool> cancelled = true;
  const SearchClock clock({.cancelled = &cancelled});
  const Assignment chosen = choose_best(problem, {.clock = &clock});
  EXPECT_TRUE(chosen.stopped);
  EXPECT_FALSE(chosen.exact);
  EXPECT_TRUE(chosen.option.empty());
  EXPECT_LE(chosen.distinct, 2);  // without the clock there are at least sixteen eliminations
}

}  // namespace
}  // namespace weft
