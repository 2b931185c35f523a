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
// The data-parallel communication of one section.
struct SectionSync {
  std::vector<FusedCollective> gathers, reduces;
  double gather = 0, reduce = 0;  // seconds, in total
};

struct DataParallelCosts {
  std::vector<SectionSync> sections;            // embedding, kinds of layers, head
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

// Depends only on the plan's degrees, ZeRO stage, copies and sequence parallelism.
DataParallelCosts data_parallel_costs(const PlanProblem& problem, GroupCosts& groups, const HybridPlan& plan,
                                      const BlockCosts& block);

}  // namespace weft
