// A search of one's own, in one file: hill climbing with restarts, on any problem that has the SearchProblem concept.
//
//   hill_climb [MODEL CLUSTER [GLOBAL_BATCH]]
//
// finds a plan by it, lets the simulator confirm it, and compares with what `weft plan` finds. Exits with 1 if it is
// more than a tenth slower.
#include <fmt/format.h>

#include <cstdlib>

#include "cost/analytic.h"
#include "hybrid/enumerate.h"
#include "hybrid/hybrid_search_space.h"

namespace weft {
namespace {

// Goes to a neighbour while that is faster; after `patience` neighbours that are not, starts somewhere else.
template <SearchProblem P>
SearchFound<P> hill_climb(const P& problem, const SearchBudget& budget, std::uint64_t seed, int patience = 50) {
  SearchFound<P> found;
  const SearchClock clock(budget);
  Rng rng(seed);
  const auto judge = [&](const typename P::Candidate& candidate) {
    ++found.counts.considered;
    const std::optional<double> step = problem.judge(candidate);
    if (!step) ++found.counts.pruned["memory"];
    if (step && (!found.best || *step < found.step_s)) found.best = candidate, found.step_s = *step;
    return step;
  };
  while ((found.stopped_by = clock.after(found.counts.considered)) == StoppedBy::Itself) {
    typename P::Candidate here = problem.random(rng);
    std::optional<double> now = judge(here);
    for (int tries = 0; tries < patience && clock.after(found.counts.considered) == StoppedBy::Itself; ++tries) {
      const typename P::Candidate next = problem.neighbour(here, rng);
      const std::optional<double> step = judge(next);
      if (!step || (now && *step >= *now)) continue;
      here = next;
      now = step;
      tries = -1;
    }
  }
  return found;
}

Result<bool> run(const PlanRequest& request) {
  WEFT_TRY(const PlanProblem problem, pose(request));
  const AnalyticCost cost(problem.stack());
  const HybridProblem hybrid(problem, cost);
  const SearchFound<HybridProblem> climbed = hill_climb(hybrid, {.evaluations = 4000}, 1);
  if (!climbed.best) return error("nothing fits of {} plans", climbed.counts.considered);
  WEFT_TRY(const Judged judged,
           judge_strategy(problem, cost, choose_strategy(parallelism_of(*climbed.best, problem.layers))));
  WEFT_TRY(const PlanOutcome best, enumerate(problem, cost));
  fmt::print("hill climbing  {}  composed {:.4f} s, simulated {:.4f} s\n", judged.strategy, climbed.step_s,
             judged.forecast.step_s);
  fmt::print("weft plan      {}  simulated {:.4f} s\n", best.best.front().strategy, best.best.front().forecast.step_s);
  return judged.forecast.step_s <= 1.1 * best.best.front().forecast.step_s;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::PlanRequest request;
  request.model = argc > 2 ? argv[1] : "llama3-8b";
  request.cluster = argc > 2 ? argv[2] : "dgx-h100:2";
  request.global_batch = argc > 3 ? std::strtoll(argv[3], nullptr, 10) : 128;
  const weft::Result<bool> close = weft::run(request);
  if (!close.ok()) {
    fmt::print(stderr, "hill_climb: {}\n", close.error().message);
    return 2;
  }
  return *close ? 0 : 1;
}
