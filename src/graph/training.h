// The training graph: a forward graph with its backward pass, gradient accumulation and optimizer step.
//
// Given a frozen forward graph whose first result is a scalar loss, it makes one graph in three phases. Backward
// products are operators of their own ("layers.3.fc1@grad_weight") whose inputs include tensors of the forward pass:
// these inputs are the saved tensors. Cost: O(operators).
//
// Scalar inputs and results. Every micro-batch has `loss_weight`, its share of the step's tokens (1/m for m equal
// micro-batches): it weighs the micro-batch's loss and is the gradient that enters backward. Every step has
// `optimizer.step`, which counts the steps taken from 1, `optimizer.learning_rate` and, with loss scaling,
// `optimizer.loss_scale`. The results of a step are `optimizer.sums.loss`, the mean loss of the global batch; with
// clipping also `squares`, the squared norm of the gradients (of the scaled ones with loss scaling); with loss scaling
// also `non_finite`: above 0 the step was skipped, its number is used again and the loss scale lowered.
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
  double weight_decay = 0;
  // fp16: the loss is multiplied by a scale and the gradients divided by it; a step in which one of them is not finite
  // changes nothing.
  bool loss_scaling = false;
  // Parameters that are not trained: they have no gradient and no optimizer state, and backward products that only they
  // would need are left out.
  std::vector<TensorId> frozen = {};
};

struct TrainingGraph {
  Graph graph;
  OpId first_backward, first_step;  // [0, first_backward) forward, then backward, from first_step on the step
  std::vector<std::pair<TensorId, TensorId>> accumulated;  // parameter → its gradient after the last accumulation
};

// Whether `state` accumulates the losses of micro-batches.
bool sums_losses(const Graph& graph, TensorId state);

Result<TrainingGraph> make_training_graph(Graph forward, const TrainingOptions& options = {});

// Forward operators whose outputs are not saved but computed again in the backward pass, by region: the operators of a
// region are recomputed together, before the first backward product of any of them, from the tensors that enter the
// region and from the outputs of its kept operators.
struct RecomputeRegions {
  IdVec<OpId, int> region;  // −1: in no region, outputs are saved as needed
  IdVec<OpId, char> kept;   // operators of a region whose outputs are saved, not recomputed

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
