// Metropolis–Hastings over whole layers: all operators that share a weight are tied and move together, to the same
// places of every node or of a few nodes. The coarse walk before the fine one over single operators (mcmc.h).
//
// A recurrent network of forty steps has hundreds of operators and a dozen layers. What matters first — which layers
// share devices, which weights are split instead of replicated — is a choice of layers, which no change of a single
// operator makes. A proposal changes most of the program, so each is planned, compiled, priced and simulated from
// scratch, under fair sharing, with devices that do the same simulated as one (price/price.h): exact, and cheap where
// nodes are alike.
//
// `slacks`: afterwards the walk minimises bytes moved, once per slack, over strategies that are slower than the fastest
// by at most that fraction. Each such walk starts from the strategy within its limit that moves the fewest bytes so
// far, seeds included. Its result is called thrifty.
#pragma once

#include "problem/budget.h"
#include "soap/judge.h"

namespace weft {

struct TiedOptions {
  std::uint64_t seed = 1;
  int threads = 0;   // 0: all cores
  int round = 16;    // proposals of a chain between exchanges
  int patience = 8;  // rounds without improvement after which it stops
  std::vector<double> temperatures = {0.0005, 0.004, 0.015, 0.04};
  std::vector<double> slacks = {};  // ascending
};

// The strategy that moves the fewest bytes within a slack of the fastest.
struct Thrifty {
  double slack = 0;
  SoapStrategy strategy;
  Picoseconds fair = 0;
  std::int64_t bytes = 0;
};

struct TiedOutcome {
  SoapStrategy fastest;
  Picoseconds fair = 0;
  std::int64_t bytes = 0;             // that the fastest moves, if there are slacks
  std::vector<Thrifty> thrifty = {};  // by slack, if it moves less than those before
  SearchCounts counts;
};

// `seeds`: on one grid; at least one must compile and fit. Stops by itself or by the budget.
Result<TiedOutcome> search_tied(const SoapProblem& problem, const std::vector<SoapStrategy>& seeds,
                                const SearchBudget& budget, const TiedOptions& options = {},
                                const OnProgress& on_progress = {});

}  // namespace weft
