#include "synthesis/astar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace weft {
namespace {

// A program of a few variables on two to four classes of unequal devices; edges between neighbours and some others.
ProgramChoices random_program(Rng& rng) {
  ProgramChoices choices;
  choices.classes = static_cast<std::size_t>(rng.between(2, 4));
  const std::size_t variables = 2 + rng.below(4);
  const auto computation = [&] {
    ProgramChoices::Computation times;
    for (std::size_t c = 0; c < choices.classes; ++c) times.push_back(rng.below(4) == 0 ? 0 : rng.between(0, 40));
    return times;
  };
  for (std::size_t v = 0; v < variables; ++v) {
    const auto forms = static_cast<std::uint32_t>(1 + rng.below(4));
    std::vector<ProgramChoices::Option> options;
    for (std::uint32_t form = 0; form < forms; ++form)
      for (std::uint64_t twin = 0; twin < 1 + rng.below(2); ++twin) {
        ProgramChoices::Option option{form, {computation(), computation(), computation()}, 0, 0, {}};
        if (rng.below(3) == 0) {
          option.communication = rng.between(1, 30);
          option.ends = static_cast<StageEnds>(rng.below(4));
        }
        options.push_back(std::move(option));
      }
    choices.own.push_back(std::move(options));
    choices.forms.push_back(forms);
  }
  for (std::size_t a = 0; a < variables; ++a)
    for (std::size_t b = a + 1; b < variables; ++b) {
      if (b > a + 1 && rng.below(3) != 0) continue;
      std::vector<ProgramChoices::Move> table(choices.forms[VariableId(a)] * choices.forms[VariableId(b)]);
      for (ProgramChoices::Move& move : table) {
        if (rng.below(2) == 0) continue;
        move.time = rng.below(12) == 0 ? kNever : rng.between(1, 40);
        move.ends = static_cast<StageEnds>(rng.between(1, 3));
      }
      choices.pairs.push_back({VariableId(a), VariableId(b), choices.tables.size()});
      choices.tables.push_back(std::move(table));
    }
  return choices;
}

LinearPrices random_prices(std::size_t classes, Rng& rng) {
  LinearPrices prices = even_prices(classes);
  for (std::vector<std::int64_t>* weights : {&prices.stage, &prices.update})
    for (int i = 0; i < 4; ++i) {
      const std::size_t from = rng.below(classes), to = rng.below(classes);
      const std::int64_t some = rng.between(0, (*weights)[from]);
      (*weights)[from] -= some;
      (*weights)[to] += some;
    }
  return prices;
}

// Calls visit(option) for every program that is possible.
template <class Visit>
void each_program(const ProgramChoices& choices, const Visit& visit) {
  std::vector<std::uint32_t> option(choices.own.size(), 0);
  for (;;) {
    visit(option);
    std::size_t v = 0;
    while (v < option.size() && ++option[v] == choices.own[VariableId(v)].size()) option[v++] = 0;
    if (v == option.size()) return;
  }
}

Picoseconds least_sum(const ProgramChoices& choices) {
  Picoseconds least = kNever;
  each_program(choices, [&](const auto& option) { least = std::min(least, stage_sum(choices, option).total); });
  return least;
}

// Two operators on two devices. Forward 3|5, then a communication of 7, then 4|1; backward 6|2 of the second, no
// communication, 2|9 of the first; updates 1|1 and 2|0.
//   forward of the first    max(3, 5)                    = 5
//   communication                                        = 7
//   second, and all backward   max(4 + 6 + 2, 1 + 2 + 9) = 12
//   updates                 max(1 + 2, 1 + 0)            = 3
TEST(StageSum, IsTheSlowestDeviceOfEveryStageAndAllCommunication) {
  ProgramChoices choices;
  choices.classes = 2;
  using Options = std::vector<ProgramChoices::Option>;
  choices.own.push_back(Options{{0, {{{3, 5}, {2, 9}, {1, 1}}}, 0, 0, {}}});
  choices.own.push_back(Options{{0, {{{4, 1}, {6, 2}, {2, 0}}}, 0, 0, {}}});
  choices.forms = {};
  choices.forms.push_back(1);
  choices.forms.push_back(1);
  choices.tables = {{{7, ends_of(Phase::Forward)}}};
  choices.pairs = {{VariableId(0), VariableId(1), 0}};
  EXPECT_EQ(stage_sum(choices, {0, 0}).total, 5 + 7 + 12 + 3);
  EXPECT_EQ(stage_sum(choices, {0, 0}).stages, 3);
}

TEST(AStar, FindsWhatBruteForceFinds) {
  int possible = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    Rng rng = Rng(20).split(i);
    const ProgramChoices choices = random_program(rng);
    const Picoseconds least = least_sum(choices);
    // With tables of bounds that are too small for most: then they are in parts.
    const AStarOutcome found = search_astar(choices, random_prices(choices.classes, rng), {},
                                            {.budget = {}, .most_entries = rng.below(2) == 0 ? 4u : 4096u});
    if (least >= kNever) {
      EXPECT_TRUE(found.option.empty()) << i;
      continue;
    }
    ++possible;
    ASSERT_FALSE(found.option.empty()) << i;
    EXPECT_EQ(found.sum.total, least) << i;
    EXPECT_EQ(found.lower_bound, least) << i;
    EXPECT_EQ(stage_sum(choices, found.option).total, least) << i;
  }
  EXPECT_GE(possible, 300);
}

// For every program and every number of variables that are chosen: what the rest costs, by brute force, is never less
// than h. (The closed stages g are those of the program so far; the true remaining cost is the least total − g.)
TEST(AStar, NeverOverestimatesWhatRemains) {
  int checked = 0;
  for (std::uint64_t i = 0; i < 120; ++i) {
    Rng rng = Rng(21).split(i);
    const ProgramChoices choices = random_program(rng);
    const LinearPrices prices = random_prices(choices.classes, rng);
    for (std::size_t most : {4u, 4096u}) {
      const RemainingCost remaining(choices, prices, most);
      for (std::size_t first = 0; first < choices.own.size(); ++first) {
        // By the options of the variables before `first`: the least total.
        std::map<std::vector<std::uint32_t>, Picoseconds> least;
        each_program(choices, [&](const std::vector<std::uint32_t>& option) {
          const std::vector<std::uint32_t> begun(option.begin(), option.begin() + static_cast<std::ptrdiff_t>(first));
          Picoseconds& of = least.try_emplace(begun, kNever).first->second;
          of = std::min(of, stage_sum(choices, option).total);
        });
        for (const auto& [begun, total] : least) {
          std::vector<std::uint32_t> form(choices.own.size(), 0);
          Picoseconds so_far = 0;  // by the same prices: communication and the mean of all classes, of what is chosen
          for (std::size_t v = 0; v < first; ++v) {
            const ProgramChoices::Option& option = choices.own[VariableId(v)][begun[v]];
            form[v] = option.form;
            so_far += own_cost(option, prices);
          }
          for (const ProgramChoices::Pair& pair : choices.pairs)
            if (pair.b.index() < first)
              so_far = std::min<Picoseconds>(
                  kNever, so_far + choices.move(pair, begun[pair.a.index()], begun[pair.b.index()]).time);
          if (total >= kNever || so_far >= kNever) continue;
          EXPECT_LE(so_far + remaining.from(first, form), total) << i << " after " << first;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 2000);
}

// Elimination by linear prices: its bound holds, and its program is never better than the best.
TEST(Solve, BoundsTheBestProgramFromBothSides) {
  int exact = 0, possible = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    Rng rng = Rng(22).split(i);
    const ProgramChoices choices = random_program(rng);
    const Picoseconds least = least_sum(choices);
    const SolvedProgram solved = solve(choices);
    if (least >= kNever) {
      EXPECT_TRUE(solved.option.empty()) << i;
      continue;
    }
    ++possible;
    ASSERT_FALSE(solved.option.empty()) << i;
    EXPECT_LE(solved.lower_bound, least) << i;
    EXPECT_GE(solved.sum.total, least) << i;
    exact += solved.sum.total == least;
    // A* proves the optimum from there.
    const AStarOutcome proven = search_astar(choices, solved.prices, solved.option);
    EXPECT_EQ(proven.sum.total, least) << i;
  }
  fmt::print("elimination by prices found the optimum of {} of {} random programs\n", exact, possible);
  EXPECT_GT(exact, possible / 2);
}

// Memory: of all programs that fit, none is below the bound. Prices do not find every program that
// fits (they find those on the convex hull), but most.
TEST(Solve, KeepsToTheMemoryOfEveryClass) {
  int fitting = 0, found = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    Rng rng = Rng(23).split(i);
    ProgramChoices choices = random_program(rng);
    std::vector<std::int64_t> capacity;
    for (std::size_t c = 0; c < choices.classes; ++c) capacity.push_back(rng.between(10, 60));
    for (SharedVec<ProgramChoices::Option>& options : choices.own)
      for (ProgramChoices::Option& option : options)
        for (std::size_t c = 0; c < choices.classes; ++c) option.memory.push_back(rng.between(0, 20));
    Picoseconds least = kNever;
    each_program(choices, [&](const auto& option) {
      const StageSum sum = stage_sum(choices, option);
      if (bytes_over(sum, capacity) == 0) least = std::min(least, sum.total);
    });
    const SolvedProgram solved = solve(choices, {.capacity = capacity});
    if (least >= kNever || solved.option.empty()) continue;
    ++fitting;
    EXPECT_LE(solved.lower_bound, least) << i;
    if (!solved.fits) continue;
    ++found;
    EXPECT_EQ(bytes_over(stage_sum(choices, solved.option), capacity), 0) << i;
    EXPECT_GE(solved.sum.total, least) << i;
  }
  EXPECT_GT(fitting, 100);
  EXPECT_GT(found, fitting * 4 / 5);
}

// A search that is stopped returns what it was given and says how far that may be from the best.
TEST(AStar, StoppedKeepsWhatItWasGivenAndSaysTheGap) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    Rng rng = Rng(24).split(i);
    const ProgramChoices choices = random_program(rng);
    const std::vector<std::uint32_t> first(choices.own.size(), 0);
    if (stage_sum(choices, first).total >= kNever) continue;
    const AStarOutcome stopped =
        search_astar(choices, even_prices(choices.classes), first, {.budget = {.evaluations = 1}});
    EXPECT_LE(stopped.sum.total, stage_sum(choices, first).total);
    EXPECT_LE(stopped.lower_bound, least_sum(choices));
  }
}

}  // namespace
}  // namespace weft
