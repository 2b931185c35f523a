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

// What one kind of device does in the winner, where a cluster has several kinds.
struct KindUse {
  std::string kind;                    // "h100-sxm"
  std::int64_t devices = 0, used = 0;  // that there are, and that the plan uses
  std::int64_t layers = 0;             // of stages that these devices hold
  double batch = 0;                    // of a step's samples, the share that passes through them
  double busy = 0;                     // of the step, the share in which they compute, on average
  std::string waits_for;               // what most of the rest goes to …
  double waits = 0;                    // … and its share of the step
  Bytes memory, capacity;              // of the fullest
  std::string why_left_out;            // where some are not used
};

struct PlanOutcome {
  std::vector<Judged> best;  // simulated plans that fit, fastest first, baselines among them
  std::vector<Baseline> baselines;
  std::optional<Judged> closest;  // if nothing fits: the plan that lacks the least memory
  std::vector<FrontPlan> front;   // composed plans, fastest first
  double lower_bound_s = 0;       // on every plan of the space; 0: unknown
  std::vector<KindUse> kinds;     // of the winner; empty where all devices are of one kind
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
  double seconds = 0;
  double composition_error = 0;  // of the winner: composed time / simulated time − 1

  double gap() const;  // best time / lower bound − 1; 0: unknown
};

}  // namespace weft
