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
};

// By tensor: the type in which an activation or gradient is held because all that reads it are products that round
// their factors to that type (Transformer Engine saves and gathers what it has cast); none: its own. Empty: all have
// their own. What is dispatched to experts is sent as it is and cast where it arrives.
IdVec<TensorId, std::optional<DType>> held_types(const NumberTypes& types, const Graph& graph);

// The type that the factors of an operator's products are rounded to; none: they are used as they are stored.
std::optional<Arithmetic> products_of(const NumberTypes& types, const Graph& graph, OpId op);

}  // namespace weft
