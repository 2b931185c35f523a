// What a graph looks like to whoever splits it: column/row pairs of linears, the vocabulary, core attention, samples.
//
// Found from the operators and the data between them, not from names, so graphs from the zoo, Hugging Face and ONNX are
// alike. Cost: linear in operators.
#pragma once

#include <vector>

#include "strategy/layers.h"

namespace weft {

// Megatron's tensor parallelism (Shoeybi et al. 2019): a *column* linear is split by its outputs, what follows works on
// the part, and a *row* linear, split by its inputs, ends in a partial sum.
enum class TensorRole : std::uint8_t {
  Column,
  Row,
  Vocabulary,  // an embedding split by its rows
  Head,        // the linear whose outputs the cross-entropy reads: a column without a row
};
struct TensorParallelOp {
  OpId op;
  TensorRole role{};
  std::int64_t outer = 1;  // columns: a packed gate and value are cut each by itself

  bool operator==(const TensorParallelOp&) const = default;
};
struct TensorParallel {
  std::vector<TensorParallelOp> ops;  // in the order of the operators
  // Attention, and products of activations, between columns and rows: their heads are split as the columns are.
  struct Heads {
    OpId op;
    std::vector<OpId> columns;
  };
  std::vector<Heads> heads = {};
};

// A linear is a column when everything its outputs reach, through operators that keep features apart, crosses an
// activation or attention and ends in linears; those are its rows. A residual sum, a norm over the features or a loss
// on the way: it is not. Where the model has layers, pairs outside of them are left alone.
TensorParallel find_tensor_parallel(const Graph& graph, const Layers& layers);

// Core attention, the part that `selective` computes again: by operator the number of its core, −1 outside. Unfused
// cores go from the product of queries and keys to that with the values.
IdVec<OpId, int> find_attention_cores(const Graph& graph);

// Which dimension of each input of the graph counts samples, and which tokens; −1: none. The first input with a
// dimension tells their number.
struct InputDims {
  int sample = -1, sequence = -1;

  bool operator==(const InputDims&) const = default;
};
IdVec<TensorId, InputDims> find_input_dims(const Graph& graph);

}  // namespace weft
