// Tensors whose rows are tokens dispatched to experts or combined from them.
#pragma once

#include "graph/graph.h"

namespace weft {

// The Dispatch or Combine operator that produces the tensor, else one that reads it; invalid if there is none.
OpId routed_by(const Graph& graph, TensorId rows);

}  // namespace weft
