// The best program for given shares, by A* (Hart, Nilsson, Raphael 1968; HAP, Zhang et al. 2024).
//
// A state is a program of the first variables: the forms that the others can still see (a form that nobody can still
// use is dropped), the cost of its closed stages, and what every class of devices computes in the open ones, of forward,
// of backward and of the updates. Then
//
//   g   communications and closed stages
//   h   for the open stages, and for all that remains, linear prices (program_choices.h): the mean over classes instead
//       of the slowest; of the rest the exact minimum of computation and communication, by elimination in the order of
//       the search, in parts where a table would be too large (mini-buckets). Never above the true remaining cost.
//
// A state is dropped if another one of the same variables costs no more and has, in place of each form, one that every
// remaining neighbour takes at no more cost and with no other ends of stages: a superset of properties, as bits. States
// of equal layers share their bounds: equal tables are eliminated once.
//
// The search can be stopped at any time: it keeps the program it was given, and the gap to the least bound of the states
// that are left.
#pragma once

#include "problem/budget.h"
#include "synthesis/solve.h"

namespace weft {

struct AStarOptions {
  SearchBudget budget = {};                         // evaluations: states expanded
  std::size_t most_entries = std::size_t{1} << 16;  // of a table of bounds
};

struct AStarOutcome {
  std::vector<std::uint32_t> option;  // empty: nothing is possible, or none was found in the budget
  StageSum sum;
  Picoseconds lower_bound = 0;  // equal to the sum if the search was not stopped
  std::int64_t expanded = 0, dominated = 0;
  StoppedBy stopped_by = StoppedBy::Itself;

  double gap() const {
    return lower_bound > 0 ? static_cast<double>(sum.total) / static_cast<double>(lower_bound) - 1 : 0;
  }
};

// `prices`: any; the nearer to those of `solve`, the fewer states. `known`: a program that is returned if no better one
// is found; empty: none. Memory is not limited here: the price of memory, if any, is part of the sum that is minimised.
AStarOutcome search_astar(const ProgramChoices& choices, const LinearPrices& prices,
                          const std::vector<std::uint32_t>& known = {}, const AStarOptions& options = {});

// The bound h of a program of the first variables, beyond its closed stages: what the open stages and the remaining
// variables cost at least. For tests.
class RemainingCost {
 public:
  RemainingCost(const ProgramChoices& choices, const LinearPrices& prices, std::size_t most_entries);
  // Of the variables from `first` on, given the forms of those before (by variable).
  Picoseconds from(std::size_t first, const std::vector<std::uint32_t>& form) const;

 private:
  friend class AStarSearch;
  // A bound over the forms of some variables, all before the one whose elimination made it.
  struct Bound {
    std::vector<std::size_t> scope;  // variables, ascending
    std::vector<std::uint32_t> forms;
    std::shared_ptr<const std::vector<Picoseconds>> values;
    std::size_t made_by = 0;

    Picoseconds at(const std::vector<std::uint32_t>& form) const;
  };
  // By first variable: the bounds that count from there on, beside `constant_`.
  std::vector<std::vector<std::size_t>> active_;
  std::vector<Picoseconds> constant_;
  std::vector<Bound> bounds_;
};

}  // namespace weft
