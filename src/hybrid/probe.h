// The costs of a model's sections (problem/sections.h): a short instance of the model, or the whole model where none is
// known that is shorter, is compiled, priced and simulated on the devices of a few replicas, by the same compiler, cost
// model and memory accounting as a whole plan. Nothing is estimated here by other means.
//
// The costs of a section are those of one micro-batch on one device, in the steady state. They include exposed
// communication inside the section, host time and interference, as simulated, but no data-parallel communication.
// Cost: some 2 ms for a few layers, some 20 ms for a whole ResNet-50.
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
  bool split_backward = false;  // into gradients of inputs and, later, of weights (zero-bubble schedules)

  auto operator<=>(const BlockShape&) const = default;
};

// Bytes that are kept from step to step, before any sharding over replicas.
struct KeptBytes {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
};

// A computation's share of the device, which decides how it interferes with concurrent communication.
struct ComputeShare {
  double time = 0;  // seconds
  std::int32_t sm_share = 0, memory_share = 0, waves = 0;
};

// Communication inside a section, in seconds from the beginning of the section's pass.
struct CommunicationSpan {
  double start = 0, takes = 0;
  std::size_t loads = 0;  // index into SectionCost::loads
};

// A parameter of a section: in which layout operators use it, and when, in seconds since the section's pass began.
struct ParameterCost {
  Layout layout;                             // on the probe's mesh (BlockCosts::axes)
  bool trained = true;                       // it has a gradient
  bool used_backward = true;                 // the backward pass reads it (not so a table of embeddings)
  bool summed_over_tp = false;               // tensor-parallel devices hold terms of its gradient
  std::int64_t elements = 0;                 // on one device, …
  std::int64_t weights = 0, gradients = 0;   // … and their bytes in the types in which they are stored
  std::optional<DType> gathered = {};        // the type it is cast to before it is gathered (number_types.h)
  double forward_use = 0, backward_use = 0;  // first use
  double backward_ready = 0;                 // when its gradient is ready
};

// What a section reads of an earlier section that is not the one before it: the encoder's output, a position bias.
struct DistantRead {
  std::int32_t kind = 0;   // of the section that makes it
  std::int64_t bytes = 0;  // on one device
};

struct SectionCost {
  bool is_layer = false;
  double forward = 0, backward = 0;  // seconds; backward includes recomputation
  double backward_weight = 0;        // of backward: gradients of weights, which zero-bubble schedules split off
  double recompute_head = 0;         // of backward: recomputation before the first gradient is needed
  // Of backward: accumulation of gradients onto those of earlier micro-batches, which the first one skips and ZeRO-2 does
  // on shards. (A parameter that is used several times has several terms; the others are added in every micro-batch.)
  double accumulate = 0;
  double compute_forward = 0, compute_backward = 0;  // computation only
  // Of the host to issue it; of that, accumulation, which the first micro-batch skips.
  double host_forward = 0, host_backward = 0, host_accumulate = 0;
  std::vector<ComputeShare> forward_shares, backward_shares;
  std::vector<LinkLoads> loads;  // of communication inside the section, …
  std::vector<CommunicationSpan> forward_communication, backward_communication;  // … and its moments, in order
  double optimizer = 0;  // seconds of the optimizer's operators, before sharding
  int optimizer_operators = 0;
  KeptBytes dense, expert;
  std::vector<ParameterCost> parameters;
  double forward_done = 0, backward_done = 0;                    // seconds until its parameters are no longer needed
  std::int64_t stored_elements = 0, stored_expert_elements = 0;  // of its parameters, on one device
  // Temporary memory, in bytes: `net` the change from the beginning of a pass to its end, `most` the peak above its
  // beginning. Backward frees what forward left; in a split backward, the weights' part frees what the inputs' part
  // left.
  std::int64_t net_forward = 0, most_forward = 0, most_backward = 0;
  std::int64_t net_input = 0, most_input = 0, most_weight = 0;
  std::int64_t sent_bytes = 0;  // read by the next section: what a stage sends that ends here
  std::vector<DistantRead> reads;
};

struct BlockCosts {
  std::vector<SectionCost> kinds;  // by Section::kind
  std::vector<MeshAxis> axes;      // of the probe's mesh
  double step_fixed = 0;           // seconds of the optimizer step that belong to no parameter
  double host_per_update = 0;      // seconds of the host for an operator of the optimizer step
};

// `graphs` holds training graphs of shapes that were probed before.
Result<BlockCosts> probe_block(const PlanProblem& problem, const CostModel& cost, const BlockShape& shape,
                               GraphCache& graphs);

}  // namespace weft
