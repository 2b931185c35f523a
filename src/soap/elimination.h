// Min-plus elimination: the cheapest option of every variable under a sum of tables, each over one or two variables,
// with the memory that options take as a limit. The mathematics of the exact and the symbolic search.
//
//   minimise  Σ_v own[v](x_v) + Σ_(a,b) table(x_a, x_b)      subject to  Σ_v memory[v](x_v) ≤ limit
//
// A variable is eliminated by minimising over it the sum of the tables it stands in: what is left is a table over its
// neighbours. Variables go in the order that makes the smallest tables. Tables with the same numbers are one, and what
// follows from the same tables is found once: a hundred equal layers cost as much as one. With a memory limit, entries
// are Pareto fronts of (memory, cost); memory is counted in quanta, so that fronts stay short.
//
// Where a table would grow past `most_entries`, the sum is cut into parts that are minimised each by itself
// (mini-buckets: Dechter, Rish 2003). The result is then a lower bound, the options found are improved by local search,
// and `exact` is false.
//
// Cost: of each distinct elimination, its table's entries × the options of the variable (× the fronts' lengths).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/id.h"

namespace weft {

using VariableId = Id<struct VariableTag>;

// No plan: an option or a pair of options that cannot be. Sums of costs stay at it.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;

struct ChoiceProblem {
  struct Option {
    std::int64_t cost = 0;    // at least 0
    std::int32_t memory = 0;  // quanta, at least 0

    auto operator<=>(const Option&) const = default;
  };
  struct Pair {
    VariableId a, b;        // different
    std::size_t table = 0;  // cost of (option of a, option of b), the latter fastest
  };
  IdVec<VariableId, std::vector<Option>> own;  // by variable: its options, one at least
  std::vector<Pair> pairs;
  std::vector<std::vector<std::int64_t>> tables;
  std::optional<std::int32_t> memory_limit = {};  // quanta
};

struct Assignment {
  std::vector<std::uint32_t> option;  // by variable; empty: no options fit
  std::int64_t cost = kNever;
  std::int64_t lower_bound = 0;  // of any options
  std::int32_t memory = 0;
  bool exact = true;  // cost = lower bound, by elimination alone
  std::int64_t eliminations = 0, distinct = 0;
  std::size_t largest_table = 0;
};

struct EliminationOptions {
  std::size_t most_entries = std::size_t{1} << 20;  // of a table
};

Assignment choose_best(const ChoiceProblem& problem, const EliminationOptions& options = {});

// The judge: what given options cost and take. kNever if some do not go together; the limit is not looked at.
ChoiceProblem::Option judge_choice(const ChoiceProblem& problem, const std::vector<std::uint32_t>& option);

// Changes one variable at a time to what is best for it, until nothing gets better; keeps within the memory limit once
// it is there.
void improve_choice(const ChoiceProblem& problem, std::vector<std::uint32_t>& option);

}  // namespace weft
