// The best partition of a chain of layers into pipeline stages, each with its own devices.
//
//   minimise  Σ_s t_s + (m − 1) · max_s t_s      over cuts of the layers, numbers of stages and devices per stage
//
// t_s is the time of a stage for one of m micro-batches; all devices are used. This is the time of 1F1B and GPipe with
// free transfers. For every possible time of the slowest stage, in ascending order, a dynamic programme over (stages to
// the end, first layer, devices) finds the least sum; it stops when no smaller total is possible (Alpa, Zheng et al.
// 2022). The n-th stage from the end has min(m, n) micro-batches in flight, which `stage_time` takes as an argument.
//
// Cost: at most distinct stage times × stages × layers² × devices × meshes; each stage time is requested once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "problem/budget.h"
#include "simulate/workload.h"

namespace weft {

struct PartitionProblem {
  std::size_t layers = 1;
  int devices = 1;                   // all are used
  std::vector<int> mesh_sizes = {};  // numbers of devices that a stage may have
  std::int64_t micro_batches = 1;
  std::size_t most_stages = 1;
  // Time per micro-batch of layers [first, last) on a mesh, with `in_flight` micro-batches in memory; none: does not
  // fit.
  std::function<std::optional<Picoseconds>(std::size_t first, std::size_t last, std::size_t mesh,
                                           std::int64_t in_flight)>
      stage_time;
  const SearchClock* clock = nullptr;  // stops with the best partition so far
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
