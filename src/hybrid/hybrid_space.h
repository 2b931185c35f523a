// The hybrid space of layered models: TP × CP × EP × PP × DP × interleaving × micro-batch × ZeRO × recomputation ×
// sequence parallelism × schedule × stage split, aligned to the cluster's nodes. ZeRO-3 also with copies on groups of
// whole nodes (hybrid sharding).
//
// Candidates are listed in one fixed order. Those that do not divide (heads by tp, batch by dp, micro-batches by a
// schedule …) are counted and left out.
#pragma once

#include <functional>
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
  std::int64_t most_micro_batch = 16;  // largest, in samples, or …
  std::int64_t most_tokens = 1 << 16;  // … in tokens, where sequences are short
  std::int64_t least_context =
      4096;                      // fewest tokens of a context-parallel part: with fewer, communication is not hidden
  bool light_ends = true;        // stages also with embedding and head counted as layers
  std::int64_t most_tensor = 0;  // largest tensor-parallel degree; 0: the devices of a node
  bool hybrid_sharding = true;   // ZeRO-3 inside groups of whole nodes, copies across them
  bool pipelined_zero = false;   // ZeRO-2 and 3 with pipelines too, though no stack supports it

  // Only plans for which it is true, where given: those that a trainer can be told (export/export.h).
  std::function<bool(const Parallelism&)> admits = {};

  // Unusual plans too, to measure how fast plans are composed.
  static SpaceOptions whole();
};

struct HybridSpace {
  std::vector<HybridPlan> plans;
  std::int64_t left_out = 0;      // candidates that do not divide
  std::int64_t not_admitted = 0;  // candidates that SpaceOptions::admits refuses
};

HybridSpace enumerate_space(const PlanProblem& problem, const SpaceOptions& options = {});

}  // namespace weft
