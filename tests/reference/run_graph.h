// Executes a whole graph on one device, in fp64.
#pragma once

#include <functional>

#include "graph/graph.h"
#include "reference/block.h"

namespace weft::reference {

// The value of every tensor of the graph; `leaf` fills inputs, parameters and states.
IdVec<TensorId, Block> run_graph(const Graph& graph, const std::function<void(TensorId, Block&)>& leaf);

}  // namespace weft::reference
