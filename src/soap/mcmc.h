// Metropolis–Hastings over the SOAP space by delta simulation (FlexFlow, MLSys'19): p(S) ∝ exp(−cost(S) / T), T
// relative to the current cost.
//
// A proposal is accepted if its step takes at most now·(1 − T·ln u), where `now` is the time of the current strategy. u
// is drawn before the simulation, so that it can be abandoned once the threshold is exceeded. Several chains with
// different temperatures and random streams run in parallel and exchange results after every round: the best chain
// adopts changes that others made elsewhere, if they help, and chains that are far behind restart from the best. Rounds
// are counted in proposals, so the same seed gives the same outcome on any number of threads.
//
// Memory is a hard limit: a chain's best strategy is checked at every exchange, and discarded if it does not fit.
#pragma once

#include "problem/budget.h"
#include "soap/judge.h"

namespace weft {

struct McmcOptions {
  std::uint64_t seed = 1;
  int threads = 0;  // 0: as many as the machine has
  int round = 64;   // proposals of a chain between exchanges
  // One chain per temperature, relative to the step time; empty: by the network's size, lower for large networks.
  std::vector<double> temperatures = {};
};

struct McmcOutcome {
  SoapStrategy best;  // under fair sharing, of all strategies judged in full
  Picoseconds fair = 0;
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
  std::vector<Picoseconds> seeds;  // fifo times of the seeds; 0: does not compile or does not fit
  std::int64_t accepted = 0;
};

// `seeds`: at least one must compile and fit. Host time of the stack is ignored.
Result<McmcOutcome> search_mcmc(const SoapProblem& problem, const std::vector<SoapStrategy>& seeds,
                                const SearchBudget& budget, const McmcOptions& options = {},
                                const OnProgress& on_progress = {});

// The stack with hosts that take no time, as in FlexFlow's simulator.
SoftwareStack without_host_time(SoftwareStack stack);

}  // namespace weft
