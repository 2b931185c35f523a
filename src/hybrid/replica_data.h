// What the replicas of a plan say to one another for a section: its gradients reduced, its weights gathered, by the
// ways that the compiler takes. Over several axes the way depends on which dimension each of them cuts.
//
// Times are of all replicas at once (group_cost.h), one section after the other; when they talk is not said here
// (two_streams.h). Cost: some 100 µs, once for all plans of equal degrees.
#pragma once

#include <cstdint>
#include <vector>

#include "hybrid/group_cost.h"
#include "hybrid/hybrid_plan.h"
#include "hybrid/probe.h"

namespace weft {

// Groups of ranks along the axes that gradients are summed over.
struct ReplicaGroups {
  StridedGroup data, experts, context, expert_context;
  StridedGroup copies;  // of what is spread: sums of parts are added up over them
  StridedGroup tensor;

  std::int64_t shards() const { return data.size * experts.size * context.size * expert_context.size; }
  std::int64_t expert_shards() const { return data.size * context.size; }
};
ReplicaGroups replica_groups(const HybridPlan& plan);

// Parameters of a section (SectionCost::parameters) that travel together.
struct SaidPiece {
  double seconds = 0;
  std::vector<std::int32_t> parameters;
};
struct SectionData {
  std::vector<SaidPiece> gathers, reduces;
  double gather = 0, reduce = 0;  // seconds of all
};

struct ReplicaData {
  std::vector<SectionData> sections;            // before, kinds, after
  std::int32_t sm_share = 0, memory_share = 0;  // of the device, most of the time
  struct Step {
    double part = 0;   // of the time of all
    double spare = 1;  // GroupCost::Taken
    LinkLoads links;
  };
  std::vector<Step> steps;  // of gathers and reductions of layers, those that are alike as one
  double tied_reduce = 0;   // of the table that embedding and head share, in each of the two stages
  double whole_world = 0;   // a scalar summed over all devices
};

// Depends on the plan's degrees, ZeRO, copies and sequence parallelism alone.
ReplicaData make_replica_data(const PlanProblem& problem, GroupCosts& groups, const HybridPlan& plan,
                              const BlockCosts& block);

}  // namespace weft
