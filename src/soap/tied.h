// Metropolis–Hastings over whole layers: all operators that share a weight move as one, on devices that are alike in
// every node or few of them. The coarse walk before the fine one (mcmc.h).
//
// A network of forty steps has hundreds of operators and a dozen layers: what matters first — which layers share
// devices, which weights are split instead of summed — is a choice of layers, and no single operator of a layer can
// make it alone. A proposal changes most of the program, so each is planned, compiled, priced and played anew, under
// fair sharing, with devices that do the same as one (price/price.h): exact, and cheap where nodes are alike.
//
// `slacks`: at the end the walk goes on for fewer bytes, once for each: what takes up to so much longer than the
// fastest and moves less is taken. Each goes on from what moved least so far of what takes no longer, seeds included.
#pragma once

#include "problem/budget.h"
#include "soap/judge.h"

namespace weft {

struct TiedOptions {
  std::uint64_t seed = 1;
  int threads = 0;   // 0: as many as the machine has
  int round = 16;    // proposals of a chain between meetings
  int patience = 8;  // rounds without a gain after which it stops
  std::vector<double> temperatures = {0.0005, 0.004, 0.015, 0.04};
  std::vector<double> slacks = {};  // ascending
};

struct Thrifty {
  double slack = 0;
  SoapStrategy strategy;
  Picoseconds fair = 0;
  std::int64_t bytes = 0;
};

struct TiedOutcome {
  SoapStrategy fastest;
  Picoseconds fair = 0;
  std::int64_t bytes = 0;             // that the fastest moves, if slacks were asked for
  std::vector<Thrifty> thrifty = {};  // by slack, where one moves less than those before
  SearchCounts counts;
};

// `seeds`: on one grid; at least one that compiles and fits. Stops by itself, or by the budget.
Result<TiedOutcome> search_tied(const SoapProblem& problem, const std::vector<SoapStrategy>& seeds,
                                const SearchBudget& budget, const TiedOptions& options = {},
                                const OnProgress& on_progress = {});

}  // namespace weft
