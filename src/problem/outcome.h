// What a search returns: the best plans that it simulated, the baselines, and a bound on how far the best plan is from
// the optimum of the space.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "problem/budget.h"
#include "problem/judge.h"

namespace weft {

struct Baseline {
  std::string name;         // "data parallel"
  std::string description;  // in one line
  std::optional<Judged> judged;
  std::string why_not;  // why there is no plan
};

// A plan of the Pareto front of time and memory.
struct FrontPlan {
  std::string strategy;
  double step_s = 0;
  std::int64_t memory = 0;
};

struct PlanOutcome {
  std::vector<Judged> best;  // simulated plans that fit, fastest first, baselines among them
  std::vector<Baseline> baselines;
  std::optional<Judged> closest;  // if nothing fits: the plan that lacks the least memory
  std::vector<FrontPlan> front;   // composed plans, fastest first
  double lower_bound_s = 0;       // on every plan of the space; 0: unknown
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
  double seconds = 0;
  double composition_error = 0;  // of the winner: composed time / simulated time − 1

  double gap() const;  // best time / lower bound − 1; 0: unknown
};

}  // namespace weft
