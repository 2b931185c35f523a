// The number types that a step computes and sends in, where they are other than those that the graph stores.
#pragma once

#include <optional>

#include "base/arithmetic.h"
#include "graph/graph.h"

namespace weft {

struct NumberTypes {
  // Factors of matrix products are rounded to this: tf32 those of all fp32 products, narrower types (fp8) those of the
  // linear operators inside layers.
  std::optional<Arithmetic> products = {};
  std::optional<DType> sent_gradients = {}, sent_parameters = {};  // wire types of collectives
  // What was cast is what is kept for backward (Transformer Engine), and what is gathered; else the tensor as it was,
  // which is cast again: torchao's linears keep it, and scales of rows do not serve columns.
  bool keeps_casts = true, gathers_casts = true;
  bool gathers_weights = false;        // weights are cast before they are gathered
  bool wide_weight_gradients = false;  // products that make them read their factors as they are stored
};

// By tensor: the type in which an activation or gradient is held because all that reads it are products that round
// their factors to that type (Transformer Engine saves and gathers what it has cast); none: its own. Empty: all have
// their own, as where casts are not kept. What is dispatched to experts is sent as it is and cast where it arrives.
IdVec<TensorId, std::optional<DType>> held_types(const NumberTypes& types, const Graph& graph);

// The type that what is gathered for an operator's products moves in; none: as it is held.
std::optional<DType> gathered_type(const NumberTypes& types, const Graph& graph, OpId op);

// The type that a weight is gathered in because all products that read it round to that type; none: it is not cast before.
std::optional<DType> gathered_weight_type(const NumberTypes& types, const Graph& graph, TensorId weight);

// The type that the factors of an operator's products are rounded to; none: they are used as they are stored.
std::optional<Arithmetic> products_of(const NumberTypes& types, const Graph& graph, OpId op);

}  // namespace weft
