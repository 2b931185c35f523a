// The structure of a graph that matters for splitting: column/row pairs of linears, the vocabulary, core attention,
// samples.
//
// Found from the operators and the tensors between them, not from names, so it works on graphs from the zoo, Hugging
// Face and ONNX. Cost: linear in operators.
#pragma once

#include <vector>

#include "strategy/layers.h"

namespace weft {

// Megatron's tensor parallelism (Shoeybi et al. 2019): a *column* linear is split by its output features, the operators
// after it work on the split features, and a *row* linear, split by its input features, gives a partial sum.
enum class TensorRole : std::uint8_t {
  Column,
  Row,
  Vocabulary,  // an embedding split by its rows
  Head,        // the linear whose outputs the cross-entropy reads: a column without a row
};
struct TensorParallelOp {
  OpId op;
  TensorRole role{};
  std::int64_t outer = 1;  // columns: 2 if gate and value are packed, each of which is split

  bool operator==(const TensorParallelOp&) const = default;
};
struct TensorParallel {
  std::vector<TensorParallelOp> ops;  // in the order of the operators
  // Attention, and products of activations, between columns and rows: their heads are split like the columns.
  struct Heads {
    OpId op;
    std::vector<OpId> columns;
  };
  std::vector<Heads> heads = {};
};

// A linear is a column if all paths from its output, through operators that do not mix features, pass an activation or
// attention and end in linears; those are its rows. A residual sum, a norm over the features or a loss on a path rules
// it out. If the model has layers, pairs outside of them are ignored.
TensorParallel find_tensor_parallel(const Graph& graph, const Layers& layers);

// Core attention, the part that `selective` recomputes: by operator the number of its core, −1 outside. An unfused core
// extends from the product of queries and keys to the product with the values.
IdVec<OpId, int> find_attention_cores(const Graph& graph);

// Which dimension of each input of the graph is that of samples, and which that of tokens; −1: none. The first input
// that has the dimension determines its size.
struct InputDims {
  int sample = -1, sequence = -1;

  bool operator==(const InputDims&) const = default;
};
IdVec<TensorId, InputDims> find_input_dims(const Graph& graph);

}  // namespace weft
