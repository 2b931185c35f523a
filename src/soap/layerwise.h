// Plans in which every layer has a parallelism of its own (Galvatron, Miao et al. 2022): tensor and data parallel
// degree, ZeRO stage and recomputation, under a memory limit; and pipelines of such plans.
//
// The costs of a layer come in a table, one row per option; layer_table.h fills it from the compiler and a cost model.
// A plan for a stage is found by dynamic programming over (layer, option, memory): exact for
//
//   Σ layers (time + change of layout to the next) subject to Σ memory ≤ limit, each layer's memory in whole quanta,
//   rounded up
//
// and a pipeline by best_partition over such stages.
// Cost of a plan: layers × options² × quanta.
#pragma once

#include <functional>
#include <limits>
#include <string>

#include "base/units.h"
#include "soap/partition.h"

namespace weft {

struct LayerOption {
  int tp = 1, dp = 1, zero = 0;
  bool recompute = false;

  int devices() const { return tp * dp; }
  bool operator==(const LayerOption&) const = default;
};
std::string print(const LayerOption& option);  // "tp=2 dp=4 zero=3 recompute"

struct LayerCost {
  Picoseconds micro_batch = 0;  // forward and backward of one
  Picoseconds step = 0;         // once: what of the synchronisation and the optimizer is not hidden
  Bytes states;                 // weights, gradients, optimizer
  Bytes activations;            // of a micro-batch in flight

  bool operator==(const LayerCost&) const = default;
};

// Costs of a model of repeated layers, for one size of micro-batch.
struct LayerTable {
  std::vector<LayerOption> options;
  std::size_t layers = 0;
  std::vector<LayerCost> layer;        // by option
  std::vector<LayerCost> first, last;  // what stands before and after the layers, by the option of the next one
  std::vector<std::vector<Picoseconds>> change;  // of layout, from option to option, for a micro-batch there and back
};

struct LayerwisePlan {
  std::vector<std::size_t> option;  // by layer of the stage
  Picoseconds micro_batch = 0, step = 0;
  Bytes memory;  // in whole quanta
};

struct StageRange {
  std::size_t first = 0, last = 0;  // layers
  int devices = 0;                  // of its options; 0: any
  std::int64_t in_flight = 1;       // micro-batches
  std::int64_t micro_batches = 1;   // of a step, over which the step's own time is weighed
};
// The best options for the layers of a stage; none: nothing fits.
std::optional<LayerwisePlan> best_layers(const LayerTable& table, const StageRange& range, Bytes limit, Bytes quantum);

// What best_layers weighs, micro_batches·micro_batch + step, for stages of every length at once: entry n of stages of n
// layers that begin at the range's first one, each way they may end. kNoTime: nothing fits. Options that change to all
// others alike are one on the way from layer to layer. Cost: layers × (options + kinds of layout²) × quanta.
inline constexpr Picoseconds kNoTime = std::numeric_limits<Picoseconds>::max() / 4;
struct TimesByLength {
  std::vector<Picoseconds> inside;  // more layers follow
  Picoseconds to_the_end = kNoTime;
};
TimesByLength best_times(const LayerTable& table, const StageRange& range, Bytes limit, Bytes quantum);

// A whole model: stages, each with its plan.
struct LayerwisePipeline {
  std::vector<LayerwisePlan> stages;
  std::vector<StagePartition::Stage> cut;
  std::int64_t micro_batches = 1;
  Picoseconds time = 0;  // of a step
};
// Every number of micro-batches for which `table_of` has one; the best of all.
struct LayerwiseProblem {
  int devices = 1;
  std::vector<std::int64_t> micro_batches;
  std::function<const LayerTable*(std::int64_t micro_batches)> table_of;
  Bytes limit, quantum;
  std::size_t most_stages = 1;
};
std::optional<LayerwisePipeline> best_layerwise(const LayerwiseProblem& problem);

}  // namespace weft
