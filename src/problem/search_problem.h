// The interface between a search and its problem. A search written against this concept (examples/hill_climb.cpp) runs
// on every problem that models it, such as HybridProblem (hybrid/hybrid_problem.h).
//
//   random(rng)              any candidate of the space
//   neighbour(candidate, rng) a similar candidate
//   judge(candidate)         its step time in seconds; none if it does not fit or does not compile
//   name(candidate)          as shorthand, for people and `weft simulate`
//
// All are const and safe from several threads. Random numbers come only from the generator that is passed in, so that a
// seed determines the search.
#pragma once

#include <concepts>
#include <optional>
#include <string>

#include "base/random.h"
#include "problem/budget.h"

namespace weft {

template <class P>
concept SearchProblem = requires(const P& problem, const typename P::Candidate& candidate, Rng& rng) {
  { problem.random(rng) } -> std::same_as<typename P::Candidate>;
  { problem.neighbour(candidate, rng) } -> std::same_as<typename P::Candidate>;
  { problem.judge(candidate) } -> std::same_as<std::optional<double>>;
  { problem.name(candidate) } -> std::convertible_to<std::string>;
};

// What a search found.
template <SearchProblem P>
struct SearchFound {
  std::optional<typename P::Candidate> best;  // none: nothing fits
  double step_s = 0;
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
};

}  // namespace weft
