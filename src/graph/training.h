// The training graph: a forward graph with its backward pass, gradient accumulation and optimizer step.
//
// Given a frozen forward graph whose first result is a scalar loss; back comes one graph in three phases. Backward
// products are operators of their own ("layers.3.fc1@grad_weight") that name what they read of the forward pass, so
// what must be kept (saved tensors) is simply what they read. Cost: O(operators).
#pragma once

#include <optional>
#include <span>

#include "base/result.h"
#include "graph/graph.h"

namespace weft {

enum class OptimizerKind : std::uint8_t { Sgd, Momentum, Adam, AdamW, Lamb };
std::string_view name_of(OptimizerKind kind);

struct TrainingOptions {
  OptimizerKind optimizer = OptimizerKind::AdamW;
  bool master_weights = true;                // keep an fp32 copy of parameters of lower precision
  DType moment_dtype = DType::F32;           // of the optimizer's moments
  std::optional<DType> gradient_dtype = {};  // of the accumulators; unset: the parameter's
  std::optional<double> clip_norm = 1.0;     // clip by the global gradient norm; unset: do not
  bool overflow_check = false;               // fp16: count non-finite gradients and skip the step on any
  // Parameters that are not trained: they have no gradient and no optimizer state, and nothing is differentiated that
  // only they would need.
  std::vector<TensorId> frozen = {};
};

struct TrainingGraph {
  Graph graph;
  OpId first_backward, first_step;  // operators before, between and after: forward, backward, step
  std::vector<std::pair<TensorId, TensorId>> accumulated;  // parameter → its gradient after the last accumulation
};

Result<TrainingGraph> make_training_graph(Graph forward, const TrainingOptions& options = {});

// Forward operators whose outputs are not kept but computed again in the backward pass, by region: operators of one
// region are recomputed together, before the first backward product of any of them, from the tensors that enter the
// region and from what those of its operators have made that are kept.
struct RecomputeRegions {
  IdVec<OpId, int> region;  // −1: in none, kept
  IdVec<OpId, char> kept;   // of a region, but not computed again

  static RecomputeRegions none(const Graph& graph) {
    return {IdVec<OpId, int>(graph.ops().size(), -1), IdVec<OpId, char>(graph.ops().size(), 0)};
  }
  int of(OpId op) const { return op.valid() && region.contains(op) ? region[op] : -1; }
  bool again(OpId op) const { return of(op) >= 0 && kept[op] == 0; }
};

// The forward tensors that stay in memory until the backward pass has read them, each once, views by their storage;
// parameters and inputs of the step are not among them.
std::vector<TensorId> saved_tensors(const TrainingGraph& training, const RecomputeRegions& regions);
Bytes saved_bytes(const TrainingGraph& training, const RecomputeRegions& regions);

}  // namespace weft
