// Metropolis–Hastings over the SOAP space by delta simulation (FlexFlow, MLSys'19): p(S) ∝ exp(−cost(S) / T), T
// relative to the current cost.
//
// A proposal is accepted against the *current* strategy: if its step takes at most now·(1 − T·ln u), u drawn before it
// is simulated, so that the replay of a hopeless one is abandoned there. Several chains at different temperatures run
// side by side, each with random numbers of its own, and meet after every round: the best takes over what others found
// elsewhere, where that helps, and those left behind start again from it. Rounds are counted in proposals, so the same
// seed gives the same outcome on any number of threads.
//
// Memory is a hard limit: a chain's best is checked when chains meet, and taken back where it does not fit.
#pragma once

#include "problem/budget.h"
#include "soap/judge.h"

namespace weft {

struct McmcOptions {
  std::uint64_t seed = 1;
  int threads = 0;  // 0: as many as the machine has
  int round = 64;   // proposals of a chain between meetings
  // One chain each; empty: by the network's size. Small ones are walked through, large ones mostly descended.
  std::vector<double> temperatures = {};
};

struct McmcOutcome {
  SoapStrategy best;  // under fair sharing, of all that were judged in full
  Picoseconds fair = 0;
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
  std::vector<Picoseconds> seeds;  // of the strategies it began with; 0: they do not compile, or do not fit
  std::int64_t accepted = 0;
};

// `seeds`: at least one that compiles and fits. The stack's hosts take no time here.
Result<McmcOutcome> search_mcmc(const SoapProblem& problem, const std::vector<SoapStrategy>& seeds,
                                const SearchBudget& budget, const McmcOptions& options = {},
                                const OnProgress& on_progress = {});

// The stack with hosts that take no time, as in FlexFlow's simulator.
SoftwareStack without_host_time(SoftwareStack stack);

}  // namespace weft
