// Tensors whose rows are tokens on their way to experts or back.
#pragma once

#include "graph/graph.h"

namespace weft {

// The operator that routes a tensor's rows to experts or back: what made it, else what reads it. Invalid: nothing does.
OpId routed_by(const Graph& graph, TensorId rows);

}  // namespace weft
