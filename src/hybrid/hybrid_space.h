// The hybrid space of layered models: TP × CP × EP × PP × DP × interleaving × micro-batch × ZeRO × recomputation ×
// sequence parallelism × schedule × stage split, on the cluster's node boundaries. ZeRO-3 also with copies on
// groups of whole nodes.
//
// Candidates come in one fixed order. What does not divide (heads by tp, batch by dp, micro-batches by a schedule …)
// is counted and left out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hybrid/hybrid_plan.h"

namespace weft {

struct SpaceOptions {
  std::vector<PlanSchedule> schedules = {PlanSchedule::OneForwardOneBackward, PlanSchedule::Interleaved};
  std::vector<int> zero = {0, 1, 2, 3};
  std::vector<PlanRecompute> recompute = {PlanRecompute::None, PlanRecompute::Selective, PlanRecompute::Full,
                                          PlanRecompute::Op, PlanRecompute::OpAndWide};
  std::vector<ContextMode> context = {ContextMode::Gather, ContextMode::AllToAll, ContextMode::Ring};
  std::int64_t most_micro_batch = 16;  // samples, or …
  std::int64_t most_tokens = 1 << 16;  // … so many tokens, where they are short
  std::int64_t least_context = 4096;   // tokens of a context-parallel part: with fewer, its communication is not hidden
  bool light_ends = true;              // also cut stages with embedding and head counted as layers
  std::int64_t most_tensor = 0;        // tensor-parallel degree; 0: the devices of a node
  bool hybrid_sharding = true;         // ZeRO-3 over groups of whole nodes, copies on the others
  bool pipelined_zero = false;         // ZeRO-2 and 3 with stages too, though no stack does it

  // Nothing left out for being unusual: for figures of how fast plans are judged.
  static SpaceOptions whole();
};

struct HybridSpace {
  std::vector<HybridPlan> plans;
  std::int64_t left_out = 0;  // that do not divide
};

HybridSpace enumerate_space(const PlanProblem& problem, const SpaceOptions& options = {});

}  // namespace weft
