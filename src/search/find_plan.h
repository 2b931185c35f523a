// The front door of all searches: the best plan of a problem.
//
//   find_plan(problem, cost, {.search = Search::Auto, .enumerate = {.budget = {.seconds = 30}}})
//
// Auto enumerates the hybrid space (src/hybrid). On devices of several kinds it also seeks unequal pipelines (src/mixed)
// and, for models that need no pipeline, programs (src/synthesis); for models most of whose layers differ a decision for
// every operator (src/soap: MCMC, or the exact plan where there are many); for batches that do not divide over the
// devices replicas of nearly the same size. Results are merged. Whatever the search, plans are compared by one judge
// (problem/judge.h), data parallelism is a candidate, the best plans and the baselines have where their time goes, and
// the same request gives the same plan unless time or a user stopped it.
#pragma once

#include <array>
#include <string_view>

#include "hybrid/enumerate.h"

namespace weft {

enum class Search : std::uint8_t { Auto, Enumerate, Exact, Mcmc, Symbolic, Layerwise, Hap, AStar };
inline constexpr std::array<std::string_view, 8> kSearchNames = {"auto",     "enumerate", "exact", "mcmc",
                                                                 "symbolic", "layerwise", "hap",   "astar"};
constexpr std::string_view name_of(Search search) { return kSearchNames[static_cast<std::size_t>(search)]; }

struct FindOptions {
  Search search = Search::Auto;
  EnumerateOptions enumerate = {};  // budget, threads and progress are used by every search
  std::uint64_t seed = 1;           // of MCMC
  std::string tree_file = {};       // the name of a plan that is a strategy tree; empty: named after its search
};

struct FoundPlan {
  std::string by;  // the search or searches: "enumerate and mcmc"
  PlanOutcome outcome;
};

Result<FoundPlan> find_plan(const PlanProblem& problem, const CostModel& cost, const FindOptions& options = {});

}  // namespace weft
