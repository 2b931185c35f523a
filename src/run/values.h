// Where the numbers of a run come from: samples, weights as training begins, and what enters a step.
//
// Every value is a function of the tensor's name and the element's index in the whole tensor; of samples also of their
// number since training began. So all ranks draw what one device would, whatever the split, and a step sees the same
// samples under any strategy with the same global batch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "bundle/bundle.h"
#include "run/region.h"

namespace weft::runtime {

// What a player gives with a step; the first is 1.
struct StepNumbers {
  double step = 1, learning_rate = 1e-3, loss_scale = 1;
};

// How far training has come: steps that are done, and samples that they have taken.
struct TrainingPosition {
  std::int64_t steps = 0, samples = 0;

  bool operator==(const TrainingPosition&) const = default;
};
// Of all micro-batches.
std::int64_t samples_of_step(const Bundle& bundle);
// Of a sample; 0: the model takes none.
std::int64_t tokens_of_sample(const Bundle& bundle);

// Fills in a part of a leaf (input, parameter or state), in row-major order. `step` counts from 0, `micro_batch` within
// the step; of parameters and states both are 0.
using LeafValues = std::function<void(TensorId leaf, std::int64_t step, std::int32_t micro_batch, const Region& part,
                                      std::span<double>)>;

// Calls f(index in the whole tensor) for every element of a part, in its order.
template <class F>
void for_each_index(const Region& part, const Shape& shape, const F& f, std::size_t dim = 0, std::int64_t index = 0) {
  if (dim == shape.size()) return f(index);
  for (const Range& range : part.dims[dim])
    for (std::int64_t at = range.begin; at < range.end; ++at)
      for_each_index(part, shape, f, dim + 1, index * shape[dim] + at);
}

// Tokens and labels below what tables and classes there are, images between −1 and 1; weights uniform with a variance of
// one over their inputs, gains 1, offsets 0; master weights as their weights.
// Where a graph keeps tokens in zigzag order (graph/token_order.h) they are given so. `begun` is where training goes on:
// the step after it takes the samples after it.
LeafValues synthetic_values(const Bundle& bundle, const TrainingPosition& begun = {});

// The same with tokens from a file: ids of 16 bits each, of 32 where the vocabulary has more than 65,536, mapped into
// memory. Sample n is the n-th stretch of a sequence's length, from the beginning again after the last; labels are the
// tokens that follow. An error names a file that is too short for one sample, or a token that the vocabulary lacks.
Result<LeafValues> values_from_tokens(const Bundle& bundle, const std::string& path,
                                      const TrainingPosition& begun = {});

// What the masks of one operator are drawn from in one step, and at which element a micro-batch begins: samples are the
// outermost axis, so that they get the same masks however a step's samples are cut into micro-batches.
inline std::uint64_t mask_salt(std::uint64_t seed, const Graph& graph, OpId op, std::int64_t step,
                               std::int32_t micro_batch) {
  std::uint64_t elements = 1;
  for (const Axis& axis : graph.signature(op).axes) elements *= static_cast<std::uint64_t>(axis.size);
  return seed + (static_cast<std::uint64_t>(op.index()) + 1) * 0x9e3779b97f4a7c15ULL +
         static_cast<std::uint64_t>(step + 1) * 0xd1342543de82ef95ULL +
         elements * static_cast<std::uint64_t>(micro_batch);
}

// The share of a step's samples that a micro-batch has: `loss_weight`.
double share_of_samples(const Bundle& bundle, std::int32_t micro_batch);

}  // namespace weft::runtime
