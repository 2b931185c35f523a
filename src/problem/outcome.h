// What a search returns: the best plans that it simulated, the baselines, and a bound on how far the best plan is from
// the optimum of the space.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "problem/budget.h"
#include "problem/judge.h"

namespace weft {

inline constexpr double kTie = 1.01;  // plans within this factor of the fastest are as good as it

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
  // Simulated plans that fit, baselines among them: the one to take (the simplest of those within 1 % of the fastest),
  // then the others, fastest first.
  std::vector<Judged> best;
  std::vector<Baseline> baselines;
  std::optional<Judged> closest;  // if nothing fits: the plan that lacks the least memory
  std::vector<FrontPlan> front;   // composed plans, fastest first
  double lower_bound_s = 0;       // on every plan of the space; 0: unknown
  // Whether the bound may be too high: a plan was simulated to be faster than its own bound, or plans were left out
  // that composition finds too large by less than it may be wrong.
  bool bound_is_estimate = false;
  // The fastest plan is faster than the bound: a change that is outside of the dimensions. Within them none is as fast.
  bool beyond_bound = false;
  std::vector<std::string> dimensions;  // what was chosen, and within which limits; the bound is over these
  std::vector<KindUse> kinds;           // of the winner; empty where all devices are of one kind
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
  double seconds = 0;
  double composition_error = 0;  // of the winner: composed time / simulated time − 1

  const Judged& fastest() const;  // of `best`, which has one
  // The fastest's time / lower bound − 1; nothing where no bound is known, or the fastest is beyond it.
  std::optional<double> gap() const;

  // Puts `best` in its order, keeps `top` of them. `stack`: what the stack whose costs were taken has code for.
  void settle_order(std::size_t top, Abilities stack);
};

// Judges the plans that people look at again, with where their time goes, if they do not have it: the best and the
// baselines; of a search that was stopped or whose time is up, only the first.
Status add_details(const PlanProblem& problem, const CostModel& cost, PlanOutcome& outcome, int threads);

// The plan without recomputation.
Parallelism recomputing_nothing(Parallelism plan);

// How much there is to say of a plan: degrees above one, sharding, recomputation and its modules, everything else that
// is not the default; three for everything that the stack would have to be taught. A strategy tree has more than any
// shorthand.
int knobs_of(const Parallelism& plan, Abilities stack);
int knobs_of(const Judged& judged, Abilities stack);

}  // namespace weft
