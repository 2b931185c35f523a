// Enumerative search: every plan of the hybrid space is considered, the most promising are simulated.
//
//   1. the space (hybrid_space.h), what does not divide left out
//   2. baselines: data parallel, FSDP, Megatron's rule of thumb, published degrees, each at its best, simulated
//   3. plans whose lower bound is above the best known time are pruned; the others get the first set of modules to
//      recompute that fits (problem/recompute_menu.h) and their time by composition (compose.h)
//   4. the fastest of them are simulated until no remaining one can be expected to win (expectation.h)
//   5. those that may then be the fastest recompute less, stage by stage (recompute_by_stage.h)
//   6. every plan one change away from the fastest (neighbours.h) is composed or simulated, until nothing is gained
//
// Where nothing fits, all of it again with the optimizer's state in the host's memory.
//
// The fastest is so by simulation, so it is never slower than a baseline. On clusters of
// unequal nodes the space is smaller, and its plans are all simulated; so are some pipelines of models whose layers take
// turns.
#pragma once

#include <optional>
#include <vector>

#include "hybrid/compose.h"
#include "hybrid/hybrid_space.h"
#include "problem/outcome.h"

namespace weft {

struct EnumerateOptions {
  SpaceOptions space = {};
  SearchBudget budget = {};
  int threads = 0;      // 0: all cores
  std::size_t top = 5;  // plans to return
  bool baselines = true;
  double faster_than_s = 0;  // the time of a known plan: slower ones are of no interest; 0: none is known
  OnProgress progress = {};
};

Result<PlanOutcome> enumerate(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options = {});

}  // namespace weft
