// What a search may ask of a problem, and nothing else: write a search against this concept in one file, and it runs on
// every problem that has it (examples/hill_climb.cpp does). HybridProblem (hybrid/hybrid_search_space.h) is one.
//
//   random(rng)              any candidate of the space
//   neighbour(candidate, rng) one that is almost the same
//   judge(candidate)         its step time in seconds; none where it does not fit or cannot be built
//   name(candidate)          as people and `weft simulate` read it
//
// All are const and safe from several threads. Random numbers come from the generator that is passed in, so that a seed
// gives the same search everywhere.
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
