// Data-parallel communication of a plan's sections: gradients reduced and weights gathered, by the sequences of
// collectives that the compiler chooses. Over several mesh axes they depend on the dimension that each axis cuts.
//
// Durations are those of all replicas communicating at once (group_cost.h), one section after the other; when each
// collective runs is decided in two_streams.h. Cost: some 100 µs, once for all plans of equal degrees.
#pragma once

#include <cstdint>
#include <vector>

#include "hybrid/group_cost.h"
#include "hybrid/hybrid_plan.h"
#include "hybrid/probe.h"

namespace weft {

// Groups of ranks along the axes over which gradients are summed.
struct ReplicaGroups {
  StridedGroup data, experts, context, expert_context;
  StridedGroup copies;  // hybrid sharding: gradient shards are all-reduced over them
  StridedGroup tensor;

  std::int64_t shards() const { return data.size * experts.size * context.size * expert_context.size; }
  std::int64_t expert_shards() const { return data.size * context.size; }
};
ReplicaGroups replica_groups(const HybridPlan& plan);

// The time of collectives that several parameters of a section (indices into SectionCost::parameters) share.
struct FusedCollective {
  double seconds = 0;
  std::vector<std::int32_t> parameters;
};
// Whether the backward pass reads any of the parameters, so that they are gathered again for it.
bool used_backward(const SectionCost& section, const FusedCollective& gather);
// The data-parallel communication of one section.
struct SectionSync {
  std::vector<FusedCollective> gathers, reduces;
  double gather = 0, reduce = 0;  // seconds, in total
  // Gradients that are reduced once per step, in the order in which they become ready.
  struct Part {
    std::int32_t way = 0;        // index into DataParallelCosts::reductions
    std::int32_t parameter = 0;  // index into SectionCost::parameters
    std::int64_t bytes = 0;      // as they are kept: by these a bucket is full
    std::int64_t sent = 0;       // as they are sent
  };
  std::vector<Part> parts;
};

// A sequence of collectives over groups of replicas; a reduce-scatter over `size` devices leaves that part of the bytes.
struct CollectiveSequence {
  struct Step {
    Collective collective;
    JointShape shape;
    std::int64_t size = 1;
  };
  std::vector<Step> steps;

  double seconds(GroupCosts& groups, std::int64_t bytes) const;
};

struct DataParallelCosts {
  std::vector<SectionSync> sections;            // by kind
  std::vector<CollectiveSequence> reductions;   // of SectionSync::parts
  std::int32_t sm_share = 0, memory_share = 0;  // of the device: those of the collectives that take longest
  struct Step {
    double part = 0;   // share of the time of all steps
    double spare = 1;  // GroupCost::Taken
    LinkLoads links;
  };
  std::vector<Step> steps;      // collectives of layers (ZeRO-2 and 3); those with equal link loads are merged
  double tied_reduce = 0;       // of the gradient of a tied embedding, in each of its two stages
  double world_all_reduce = 0;  // of a scalar over all devices
};

// A bucket of gradients that are reduced once per step (ZeRO-0 and 1): it is full when its last gradient is ready.
struct GradientBucket {
  std::int32_t chunk = 0, position = 0;  // in whose backward pass: of a rank's chunks and of the chunk's sections
  std::int32_t parameter = 0;            // of that section, the one whose gradient is the last
  double seconds = 0;
};
// The buckets of a rank, first ready first. `chunks`: the kinds of its sections, by chunk; `left_out`: a kind whose
// gradients are in no bucket; −1: none. They are filled as the compiler fills them (compile/buckets.h).
std::vector<GradientBucket> gradient_buckets(const SoftwareStack& stack, GroupCosts& groups,
                                             const DataParallelCosts& data,
                                             const std::vector<const std::vector<std::int32_t>*>& chunks,
                                             std::int32_t left_out);

// Depends only on the plan's degrees, ZeRO stage, copies and sequence parallelism.
DataParallelCosts data_parallel_costs(const PlanProblem& problem, GroupCosts& groups, const HybridPlan& plan,
                                      const BlockCosts& block);

}  // namespace weft
