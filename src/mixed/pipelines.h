// Pipelines over the kinds of devices of a cluster: for every size of micro-batch and of each kind's groups the best
// pipeline (stage_pipeline.h) by composed costs (stage_costs.h), fastest first. Each stage has the tensor- and
// data-parallel degree and the recomputation with which it is fastest within its devices' memory; kinds may come in any
// order along the pipeline, and some devices, or a whole kind, may be left out.
//
// Not here: interleaving and other schedules than 1F1B, context and expert parallelism, ZeRO above 1 (the optimizer's
// state is sharded inside each stage), stages whose replicas are of several kinds.
// Cost: a probe (some 2 ms) per kind, tensor-parallel degree, size of micro-batch and recomputation; then some
// milliseconds for each combination of group sizes whose bound is below the best.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hybrid/hybrid_space.h"
#include "mixed/device_kinds.h"
#include "mixed/stage_costs.h"

namespace weft {

struct MixedPipeline {
  struct Stage {
    std::size_t kind = 0;
    std::int64_t first = 0, layers = 0;
    StageOption option;

    std::int64_t devices() const { return std::int64_t{option.tp} * option.dp; }
    bool operator==(const Stage&) const = default;
  };
  std::vector<Stage> stages;
  std::int64_t micro_batches = 1;
  double seconds = 0;         // composed
  double cycle = 0, way = 0;  // of which between micro-batches, and of one from end to end (stage_pipeline.h)
};

// "19 layers h100-sxm dp=16 + 13 layers a100-sxm dp=32 ga=16": for tables and messages.
std::string print(const MixedPipeline& pipeline, const std::vector<DeviceKind>& kinds, const LayerPattern& layers);

struct PipelineCounts {
  std::int64_t considered = 0, bounded = 0, too_many = 0, solved = 0;
};

class MixedPipelines {
 public:
  // All are kept by reference.
  MixedPipelines(const PlanProblem& problem, const CostModel& cost, const std::vector<DeviceKind>& kinds,
                 const SpaceOptions& space, int threads);
  ~MixedPipelines();

  // The best of every combination of group sizes, without those that a bound shows to take more than `doubt` times the
  // best. `memory`: the share of each device's budget that may be used.
  std::vector<MixedPipeline> find(double doubt, double memory);
  // The best pipeline of these kinds alone for `micro_batches` of the `all` that the batch is cut into; none that takes
  // less than `below` seconds: none. May be called on several threads.
  std::optional<MixedPipeline> best_on(std::span<const std::size_t> kinds, std::int64_t all, std::int64_t micro_batches,
                                       double below, double memory) const;
  // Seconds of a sample on one device of a kind at least, in micro-batches of which the batch has `all`; infinite: none fits.
  double least_of(std::size_t kind, std::int64_t all) const;
  const PipelineCounts& counts() const { return counts_; }
  // Seconds of a step that every plan of these devices needs, as if all computed at their own speed all the time, one
  // waiting for none; 0: unknown.
  double bound() const;
  // The same for one device of this kind alone.
  double bound_alone(std::size_t kind) const;

 private:
  struct Kind;
  struct Group;
  struct Shape;
  class Costs;
  void make_groups();
  void price_groups();
  std::vector<Shape> shapes_of(std::span<const std::size_t> kinds, std::int64_t all) const;
  // None: nothing takes less than `below` seconds, or there are too many states.
  std::optional<MixedPipeline> solve(const Shape& shape, double below, double memory) const;
  bool has_too_many_states(const Shape& shape) const;
  double bound_of(const Shape& shape) const;
  double transfer(const Group& from, const Group& to) const;

  const PlanProblem& problem_;
  const CostModel& cost_;
  const std::vector<DeviceKind>& names_;
  const SpaceOptions& space_;
  const int threads_;
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<Group> groups_;
  PipelineCounts counts_;
};

}  // namespace weft
