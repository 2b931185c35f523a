// Enumerate: every plan of the hybrid space considered, the most promising simulated.
//
//   1. the space (hybrid_space.h), what does not divide left out
//   2. baselines: data parallel, FSDP, Megatron's rule of thumb, each with the best of its own knobs, simulated
//   3. plans that do not fit, or whose lower bound is above the best known, are put aside; the others get their time by
//      composition (compose.h)
//   4. the fastest of them are simulated until none that is left can be expected to win
//
// The winner is the fastest by simulation, so it is never slower than a baseline. Models whose layers cannot be
// composed (no layers, encoder and decoder, imported) have smaller spaces; their plans are all simulated.
#pragma once

#include <optional>
#include <vector>

#include "search/compose.h"
#include "search/hybrid_space.h"
#include "search/judge.h"
#include "search/search.h"

namespace weft {

struct EnumerateOptions {
  SpaceOptions space = {};
  SearchBudget budget = {};
  JudgeOptions judge = {};
  int threads = 0;      // 0: all cores
  std::size_t top = 5;  // plans to return
  OnProgress progress = {};
};

struct Baseline {
  std::string name;   // "data parallel"
  std::string words;  // what it stands for
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

Result<PlanOutcome> enumerate(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options = {});

}  // namespace weft
