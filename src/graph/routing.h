// Tensors whose rows are tokens dispatched to experts or combined from them.
#pragma once

#include "graph/graph.h"

namespace weft {

// The Dispatch or Combine operator that produces the tensor, else one that reads it; invalid if there is none.
OpId routed_by(const Graph& graph, TensorId rows);

// The operand of an ExpertLinear, or of its gradient, whose rows come from tokens or go to them: as many for an expert as
// chose it, where nothing limits them. Null: its rows have a capacity, or are another product's.
const Operand* ragged_rows(const Signature& signature);

}  // namespace weft
