// The best cut of a chain of layers into pipeline stages, each with devices of its own.
//
//   minimise  Σ_s t_s + (m − 1) · max_s t_s      over cuts of the layers, numbers of stages and devices per stage
//
// t_s is what a stage takes for one of m micro-batches; the sum of devices is given. This is the time of 1F1B and GPipe
// with free sends. For every value that the slowest stage may have, in ascending order, a dynamic programme over
// (stages to the end, first layer, devices) finds the least sum; it ends when no sum is small enough any more (Alpa,
// Zheng et al. 2022). A stage with n stages from itself to the end holds min(m, n) micro-batches at a time,
// which is told to who prices it.
//
// Cost: distinct stage times × stages × layers² × devices × meshes, at most; prices are asked for once each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "simulate/workload.h"

namespace weft {

struct PartitionProblem {
  std::size_t layers = 1;
  int devices = 1;                   // all are used
  std::vector<int> mesh_sizes = {};  // devices that a stage may have
  std::int64_t micro_batches = 1;
  std::size_t most_stages = 1;
  // Layers [first, last) on a mesh, with so many micro-batches in flight: for one micro-batch; none: it does not fit.
  std::function<std::optional<Picoseconds>(std::size_t first, std::size_t last, std::size_t mesh,
                                           std::int64_t in_flight)>
      stage_time;
};

struct StagePartition {
  struct Stage {
    std::size_t first = 0, last = 0, mesh = 0;

    bool operator==(const Stage&) const = default;
  };
  std::vector<Stage> stages;
  Picoseconds step = 0;
};

std::optional<StagePartition> best_partition(const PartitionProblem& problem);

}  // namespace weft
