// What one layer costs, and what stands before and after the layers: found by compiling, pricing and playing a short
// instance of the same model on one replica's devices, through the same compiler, cost model and memory accounts as a
// whole plan. Nothing is estimated here by other means.
//
// A *section* is the embedding (what comes before the layers), a layer of one kind, or the head (what comes after).
// Its costs are of one micro-batch on one device, in the steady state: exposed communication inside the section, host
// time and interference are in them, as the engine finds them. Data-parallel communication is not: one replica has
// none.
// Cost: some 2 ms.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "cost/cost.h"
#include "hybrid/group_cost.h"
#include "hybrid/hybrid_plan.h"
#include "layout/layout.h"

namespace weft {

// What a section's costs depend on.
struct BlockShape {
  std::int64_t tp = 1, cp = 1, ep = 1, micro_batch = 1;
  bool sequence_parallel = false;
  PlanRecompute recompute = PlanRecompute::None;
  ContextMode cp_mode = ContextMode::Gather;
  bool split_backward = false;  // into the input's part and, later, the weights' (zero-bubble schedules)

  auto operator<=>(const BlockShape&) const = default;
};

// Bytes that are kept from step to step, nothing of them spread over replicas.
struct KeptBytes {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
};

// A computation's share of the device, for what runs beside it.
struct ComputeShare {
  double time = 0;  // seconds
  std::int32_t sm_share = 0, memory_share = 0, waves = 0;
};

// Communication inside a section, in seconds from the beginning of the section's pass.
struct Communicating {
  double start = 0, takes = 0;
  std::size_t loads = 0;  // SectionCost::loads
};

// A parameter of a section: how operators want it, and when, in seconds from the beginning of the section's pass.
struct ParameterCost {
  Layout layout;                             // on the probe's mesh (BlockCosts::axes)
  bool trained = true;                       // it has a gradient
  bool apart = false;                        // its gradient is a sum over tensor-parallel devices too
  std::int64_t elements = 0;                 // of a device, …
  std::int64_t weights = 0, gradients = 0;   // … and their bytes as they are kept
  double forward_use = 0, backward_use = 0;  // first
  double backward_ready = 0;                 // its gradient
};

struct SectionCost {
  double forward = 0, backward = 0;  // seconds, backward with what is recomputed
  double backward_weight = 0;        // of backward: what zero-bubble schedules split off
  double recompute_head = 0;         // of backward: what is recomputed before the first gradient is needed
  double accumulate = 0;             // of backward: adding to gradients, which ZeRO-2 does on parts
  double compute_forward = 0, compute_backward = 0;  // computing alone
  std::vector<ComputeShare> forward_shares, backward_shares;
  std::vector<LinkLoads> loads;                            // of communication inside the section, …
  std::vector<Communicating> forward_said, backward_said;  // … and when it is, in order
  double optimizer = 0;                                    // seconds of the step's operators, nothing spread
  int optimizer_operators = 0;
  KeptBytes dense, expert;
  std::vector<ParameterCost> parameters;
  double forward_done = 0, backward_done = 0;                    // seconds until no parameter is needed any more
  std::int64_t stored_elements = 0, stored_expert_elements = 0;  // of parameters, on one device
  // Memory that comes and goes: what is left behind, and the most above what was held before. The backward pass takes
  // away what the forward pass left; in two parts, the weights' part what the input's part has left too.
  std::int64_t net_forward = 0, most_forward = 0, most_backward = 0;
  std::int64_t net_input = 0, most_input = 0, most_weight = 0;
};

struct BlockCosts {
  SectionCost before, after;
  std::vector<SectionCost> kinds;
  std::int64_t boundary_bytes = 0;  // of what a device hands to the next stage
  std::vector<MeshAxis> axes;       // of the probe's mesh
  double step_fixed = 0;            // of the step: what does not belong to a parameter
};

// `plans` knows the graphs of shapes that were probed before.
Result<BlockCosts> probe_block(const PlanProblem& problem, const CostModel& cost, const BlockShape& shape,
                               GraphCache& graphs);

}  // namespace weft
