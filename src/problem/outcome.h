// What a search returns: the best plans it simulated, what they were compared with, and how far they may be from the
// best of their space.
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
  std::string why_not;  // where there is none
};

// A plan of the front: none is both faster and smaller.
struct FrontPlan {
  std::string strategy;
  double step_s = 0;
  std::int64_t memory = 0;
};

struct PlanOutcome {
  std::vector<Judged> best;  // simulated plans that fit, fastest first, baselines among them
  std::vector<Baseline> baselines;
  std::optional<Judged> closest;  // where nothing fits: the one that lacks least
  std::vector<FrontPlan> front;   // time against memory, by composition
  double lower_bound_s = 0;       // no plan of the space is faster; 0: unknown
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
  double seconds = 0;
  double composition_error = 0;  // of the winner: composed over simulated, less 1

  double gap() const;
};

}  // namespace weft
