// Data parallelism over the kinds of devices of a cluster: every replica has the whole model, and those of faster kinds
// process more samples of each micro-batch; ZeRO shards evenly over all of them.
//
// For every tensor-parallel degree, ZeRO stage, recomputation and number of micro-batches, the samples of a replica of
// each kind that together make the batch. Composed: the slowest kind's time, of its own replicas alone.
// Cost: bounds for all, from the least time of a sample; a probe per kind and size of micro-batch for what they leave.
#pragma once

#include "mixed/pipelines.h"

namespace weft {

struct MixedReplicas {
  struct Kind {
    std::size_t kind = 0;
    std::int64_t nodes = 0, replicas = 0, samples = 0;  // of each replica and micro-batch
  };
  std::vector<Kind> kinds;
  std::int64_t tp = 1, micro_batches = 1;
  int zero = 0;
  PlanRecompute recompute = PlanRecompute::None;
  double seconds = 0;  // composed
};

// "dp=16 of 10 samples h100-sxm + dp=32 of 3 samples a100-80-sxm zero=3 ga=2".
std::string print(const MixedReplicas& replicas, const std::vector<DeviceKind>& kinds, const LayerPattern& layers);

// The fastest that fit, fastest first, of those that may take less than `below` seconds; at most `most`. `least`: by
// kind, a lower bound on the seconds of a sample on one device.
std::vector<MixedReplicas> find_replicas(const PlanProblem& problem, const CostModel& cost,
                                         const std::vector<DeviceKind>& kinds, const SpaceOptions& space,
                                         const std::vector<double>& least, int threads, double below, std::size_t most);

// Those of models that cannot be composed, one device a replica, by the seconds that a sample takes on one device of each
// kind; what communicates is not counted.
std::vector<MixedReplicas> replicas_in_proportion(const PlanProblem& problem, const CostModel& cost,
                                                  const std::vector<DeviceKind>& kinds,
                                                  const std::vector<double>& seconds, double below, std::size_t most);

Strategy tree_of(const MixedReplicas& replicas, const PlanProblem& problem, const std::vector<DeviceKind>& kinds,
                 const Graph& graph);

}  // namespace weft
