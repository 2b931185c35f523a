// A pipeline over unequal groups as a strategy tree, which `weft simulate --strategy` reads: every stage has a mesh of
// its own devices, its number of layers and its recomputation.
#pragma once

#include "graph/graph.h"
#include "mixed/pipelines.h"
#include "strategy/tree.h"

namespace weft {

// `graph`: of the whole model. Stages take the devices of their kind in order.
Strategy tree_of(const MixedPipeline& pipeline, const std::vector<DeviceKind>& kinds, const LayerPattern& layers,
                 const Graph& graph);

}  // namespace weft
