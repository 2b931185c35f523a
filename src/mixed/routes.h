// Pipelines of different shapes beside one another: the kinds of devices are parted into blocks, each block is a pipeline
// of its own over all layers (pipelines.h), and the micro-batches, of one size, go to them in proportion to speed.
// Gradients are summed over the routes once per step.
//
// For every size of micro-batch and every way to part the kinds, some of which may be left out: the best pipeline of each
// block for the micro-batches that its speed gives it, then the numbers of micro-batches for which the last route ends
// earliest, and the best pipelines for those. Composed: the slowest route and an estimate of the sums between routes.
// Not here: several routes of one kind (a stage's dp does that), micro-batches of different sizes.
// Cost: a few hundred dynamic programmes; ways to part more than four kinds are not all tried (each alone).
#pragma once

#include <span>

#include "mixed/pipelines.h"

namespace weft {

struct MixedRoutes {
  std::vector<MixedPipeline> routes;
  double seconds = 0;  // composed
};

// "3×(4 layers h100-sxm dp=8) ga=20 | 2×(6 layers a100-80-sxm dp=8) ga=12".
std::string print(const MixedRoutes& routes, const std::vector<DeviceKind>& kinds, const LayerPattern& layers);

// Numbers of micro-batches, `all` together and at least one each, for which the last of the pipelines ends earliest.
std::vector<std::int64_t> share_micro_batches(std::span<const MixedPipeline> routes, std::int64_t all);

// Those that may take less than `below` seconds, fastest first; at most `most`.
std::vector<MixedRoutes> find_routes(const MixedPipelines& pipelines, const PlanProblem& problem, const CostModel& cost,
                                     const std::vector<DeviceKind>& kinds, int threads, double below, double memory,
                                     std::size_t most);

}  // namespace weft
