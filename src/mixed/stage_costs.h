// The time and memory of a pipeline stage on devices of one kind, for any number of layers: composed costs
// (hybrid/compose.h) of a few stages, from which those of all others follow, because a stage's time is a sum over its
// sections and its memory a sum over sections and micro-batches in flight.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hybrid/compose.h"

namespace weft {

// The largest micro-batch of a replica that is tried: 16 samples, or 65,536 tokens where sequences are short.
std::int64_t most_samples_of(const PlanProblem& problem);

// A way to split a stage's layers over its group of devices.
struct StageOption {
  std::int32_t tp = 1, dp = 1;
  std::int32_t micro_batch = 1;  // samples of one of the dp replicas
  PlanRecompute recompute = PlanRecompute::None;

  auto operator<=>(const StageOption&) const = default;
};

// Which of the model's ends a stage has.
struct StageEnds {
  bool first = false, last = false;

  std::size_t index() const { return (first ? 1u : 0u) + (last ? 2u : 0u); }
};

// Costs of a stage as sums, by StageEnds::index() and by kind of layer.
struct StageCosts {
  std::array<double, 4> ends = {}, once_ends = {};  // seconds of a micro-batch, and of what happens once per step
  std::vector<double> layer, once_layer;
  std::array<std::int64_t, 4> kept_ends = {}, saved_ends = {};  // bytes, and bytes per micro-batch in flight
  std::vector<std::int64_t> kept_layer, saved_layer;
  std::int64_t boundary_bytes = 0;  // that a device sends to the next stage
  std::vector<double> bare;         // seconds of a micro-batch by section, for bounds: embedding, kinds of layers, head
};

// What happens once per step is spread over this many micro-batches.
constexpr double spread_over(std::int64_t micro_batches) {
  return static_cast<double>(std::max<std::int64_t>(1, micro_batches - 1));
}

// " recompute=op" as a plan's name has it; empty where nothing is.
std::string words_of(PlanRecompute recompute, const LayerPattern& layers);

// The plan whose composition gives a stage's costs: tensor parallelism with sequence parallelism, optimizer state
// sharded over replicas.
HybridPlan plan_of(const StageOption& option, std::int64_t micro_batches);

// None where the option does not compile. The composer has prepared it. `pattern`: of the whole model.
std::optional<StageCosts> stage_costs(const Composer& composer, const LayerPattern& pattern, const StageOption& option,
                                      std::int64_t micro_batches);

}  // namespace weft
