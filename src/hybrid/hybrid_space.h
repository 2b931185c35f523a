// The hybrid space of layered models: TP × CP × EP × PP × DP × interleaving × micro-batch × ZeRO × recomputation ×
// sequence parallelism × schedule × stage split, aligned to the cluster's nodes. ZeRO-3 also with copies (hybrid
// sharding), each inside a node or on whole nodes.
//
// Candidates are listed in one fixed order. Those that do not divide (heads by tp, batch by dp, micro-batches by a
// schedule …) are counted and left out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hybrid/constraints.h"
#include "hybrid/hybrid_plan.h"

namespace weft {

struct SpaceOptions {
  std::vector<PlanSchedule> schedules = {PlanSchedule::OneForwardOneBackward, PlanSchedule::Interleaved,
                                         PlanSchedule::ZeroBubbleH1,          PlanSchedule::ZeroBubbleH2,
                                         PlanSchedule::ZeroBubbleV,           PlanSchedule::DualPipeV};
  std::vector<int> zero = {0, 1, 2, 3};
  std::vector<PlanRecompute> recompute = {};  // empty: the front of the problem's menu
  std::vector<ContextMode> context = {ContextMode::Gather, ContextMode::AllToAll, ContextMode::Ring};
  std::int64_t most_micro_batch = 0;  // largest, in samples; 0: all that a replica has
  std::int64_t least_context = 512;   // fewest tokens of a context-parallel part
  bool uneven_stages = true;          // stages also with embedding and head counted as layers, or balanced by seconds
  std::int64_t most_tensor = 0;       // largest tensor-parallel degree; 0: the devices of a node
  bool hybrid_sharding = true;        // ZeRO-3 inside groups, copies across them
  bool offload = false;               // every plan keeps the optimizer's state in the host's memory
  bool pipelined_zero = false;        // ZeRO-2 and 3 with pipelines too, though no stack supports it
  Constraints constraints = {};       // of the user
  // What else is allowed of all this, such as what a trainer can be told (export/export.h); empty: everything.
  std::function<bool(const Parallelism&)> allows = {};

  // Asked once for each plan with one way to recompute, and for every plan that is simulated.
  bool allow(const Parallelism& plan) const { return constraints.allow(plan) && (!allows || allows(plan)); }

  // Unusual plans too, to measure how fast plans are composed.
  static SpaceOptions whole();
};

// The sets of the menu from which a search chooses, from the most bytes saved to the least.
std::vector<PlanRecompute> recomputations(const PlanProblem& problem, const SpaceOptions& options);

// The layers of a pipeline's stages as far as a search considers them, empty where it does not: chunks of different sizes
// only with one chunk per rank, or if embedding and head make them so; stages with an embedding alone only where that
// embeds tokens.
std::vector<std::int64_t> considered_stages(const PlanProblem& problem, std::int64_t ranks, std::int64_t chunks,
                                            StageSplit split);

// What a search with these options chooses, in words, and within which limits: "tensor parallelism up to 8 (a node)".
std::vector<std::string> dimensions_of(const PlanProblem& problem, const SpaceOptions& options);

struct HybridSpace {
  std::vector<HybridPlan> plans;
  std::int64_t left_out = 0;     // candidates that do not divide
  std::int64_t not_allowed = 0;  // by SpaceOptions::allow
};

HybridSpace enumerate_space(const PlanProblem& problem, const SpaceOptions& options = {});

}  // namespace weft
