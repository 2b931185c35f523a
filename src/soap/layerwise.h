// Plans in which every layer has its own tensor- and data-parallel degree, ZeRO stage and recomputation, under a memory
// limit (Galvatron, Miao et al. 2022); and pipelines of such plans.
//
// The costs of a layer are a table with one row per option; layer_table.h fills it by the compiler and a cost model. A
// plan for a stage is found by dynamic programming over (layer, option, memory). It is optimal for
//
//   Σ layers (time + resharding to the next) subject to Σ memory ≤ limit, each layer's memory rounded up to quanta
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
  Picoseconds step = 0;         // once per step: exposed gradient synchronisation and optimizer
  Bytes states;                 // weights, gradients, optimizer state
  Bytes activations;            // of a micro-batch in flight

  bool operator==(const LayerCost&) const = default;
};

// Costs of a model of repeated layers, for one size of micro-batch.
struct LayerTable {
  std::vector<LayerOption> options;
  std::size_t layers = 0;
  std::vector<LayerCost> layer;        // by option
  std::vector<LayerCost> first, last;  // embedding and head, by the option of the adjacent layer
  std::vector<std::vector<Picoseconds>>
      change;  // resharding from option to option, forward and backward of a micro-batch
};

struct LayerwisePlan {
  std::vector<std::size_t> option;  // by layer of the stage
  Picoseconds micro_batch = 0, step = 0;
  Bytes memory;  // in whole quanta, in bytes
};

struct StageRange {
  std::size_t first = 0, last = 0;  // layers
  int devices = 0;                  // that its options must have; 0: any
  std::int64_t in_flight = 1;       // micro-batches
  std::int64_t micro_batches = 1;   // of a step
};
// The best options for the layers of a stage; none: nothing fits.
std::optional<LayerwisePlan> best_layers(const LayerTable& table, const StageRange& range, Bytes limit, Bytes quantum);

// The objective of best_layers, micro_batches·micro_batch + step, for stages of every length at once: entry n for n
// layers from the range's first one. kNoTime: nothing fits. Options with equal resharding costs to all others are one
// kind of layout. Cost: layers × (options + kinds of layout²) × quanta.
inline constexpr Picoseconds kNoTime = std::numeric_limits<Picoseconds>::max() / 4;
struct TimesByLength {
  std::vector<Picoseconds> inside;  // of stages after which more layers follow
  Picoseconds to_the_end = kNoTime;
};
TimesByLength best_times(const LayerTable& table, const StageRange& range, Bytes limit, Bytes quantum);

// A plan of the whole model: pipeline stages, each with its plan.
struct LayerwisePipeline {
  std::vector<LayerwisePlan> stages;
  std::vector<StagePartition::Stage> cut;
  std::int64_t micro_batches = 1;
  Picoseconds time = 0;  // of a step
};
// The best pipeline over all numbers of micro-batches for which `table_of` gives a table.
struct LayerwiseProblem {
  int devices = 1;
  std::vector<std::int64_t> micro_batches;
  std::function<const LayerTable*(std::int64_t micro_batches)> table_of;
  Bytes limit, quantum;
  std::size_t most_stages = 1;
  const SearchClock* clock = nullptr;  // stops with the best pipeline so far
};
std::optional<LayerwisePipeline> best_layerwise(const LayerwiseProblem& problem);

}  // namespace weft
