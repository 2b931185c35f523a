// Executes a whole graph on one device, in fp64.
#pragma once

#include <functional>

#include "graph/graph.h"
#include "reference/block.h"

namespace weft::reference {

// How an operator with values local to a shard (BatchNorm's statistics) is cut: it runs once per shard, as in the plan
// that is compared with. None: as a whole.
using Shards = std::function<std::vector<AxisSlices>(OpId)>;

// The value of every tensor of the graph; `leaf` fills inputs, parameters and states. Tensors local to shards stay
// zero.
IdVec<TensorId, Block> run_graph(const Graph& graph, const std::function<void(TensorId, Block&)>& leaf,
                                 const Shards& shards = {});

}  // namespace weft::reference
