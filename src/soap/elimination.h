// Min-plus variable elimination: choose an option for every variable so that a sum of tables, each over one or two
// variables, is least, under a limit on memory. Used by the exact and the symbolic search.
//
//   minimise  Σ_v own[v](x_v) + Σ_(a,b) table(x_a, x_b)      subject to  Σ_v memory[v](x_v) ≤ limit
//
// A variable is eliminated by minimising over it the sum of the tables that contain it; the result is a table over its
// neighbours. Variables are eliminated in the order that makes the smallest tables. Equal tables are stored once, and
// eliminations from equal tables are computed once: a hundred equal layers cost as much as one. With a memory limit,
// entries are Pareto fronts of (memory, cost); memory is counted in quanta, so that fronts stay short.
//
// Where a table would have more than `most_entries`, the sum is divided into parts that are minimised separately
// (mini-buckets: Dechter, Rish 2003). The result is then a lower bound, the chosen options are improved by local
// search, and `exact` is false.
//
// Cost of each distinct elimination: its table's entries × the options of the variable (× the lengths of fronts).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/id.h"
#include "problem/budget.h"

namespace weft {

using VariableId = Id<struct VariableTag>;

// The cost of an impossible option or pair of options. Sums saturate at it.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;

struct ChoiceProblem {
  struct Option {
    std::int64_t cost = 0;    // at least 0
    std::int32_t memory = 0;  // quanta, at least 0

    auto operator<=>(const Option&) const = default;
  };
  struct Pair {
    VariableId a, b;        // not equal
    std::size_t table = 0;  // costs by (option of a, option of b), row-major
  };
  IdVec<VariableId, std::vector<Option>> own;  // by variable: its options, at least one
  std::vector<Pair> pairs;
  std::vector<std::vector<std::int64_t>> tables;
  std::optional<std::int32_t> memory_limit = {};  // quanta
};

struct Assignment {
  std::vector<std::uint32_t> option;  // by variable; empty: no options fit
  std::int64_t cost = kNever;
  std::int64_t lower_bound = 0;  // on the cost of all assignments
  std::int32_t memory = 0;
  bool exact = true;     // cost = lower bound: no table was divided
  bool stopped = false;  // the clock stopped it: there are no options, and the bound may be 0
  std::int64_t eliminations = 0, distinct = 0;
  std::size_t largest_table = 0;
};

struct EliminationOptions {
  std::size_t most_entries = std::size_t{1} << 20;  // of one table
  const SearchClock* clock = nullptr;               // asked every few milliseconds whether to go on
};

Assignment choose_best(const ChoiceProblem& problem, const EliminationOptions& options = {});

// Cost and memory of given options; kNever if some are incompatible. The memory limit is not checked.
ChoiceProblem::Option judge_choice(const ChoiceProblem& problem, const std::vector<std::uint32_t>& option);

// Coordinate descent: changes one variable at a time to its best option until nothing improves. Exceeding the memory
// limit counts before cost.
void improve_choice(const ChoiceProblem& problem, std::vector<std::uint32_t>& option);

}  // namespace weft
