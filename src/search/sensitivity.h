// How the best plan changes with faster links, more memory, a larger batch: searches around it.
#pragma once

#include <string>
#include <vector>

#include "hybrid/enumerate.h"

namespace weft {

struct Sensitivity {
  std::string what;      // "bandwidth × 2"
  std::string strategy;  // of the best plan then; empty: nothing fits
  double step_s = 0;
  double samples_per_s = 0;
};

// Each is a search of its own, with few simulations, of plans whose degrees are at most a factor of two from those of
// the best.
Result<std::vector<Sensitivity>> sensitivities(const PlanProblem& problem, const CostModel& cost,
                                               const EnumerateOptions& options, const Parallelism& best);

}  // namespace weft
