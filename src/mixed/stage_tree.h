// Pipelines over unequal groups as a strategy tree, which `weft simulate --strategy` reads: every stage has a mesh of its
// own devices, its number of layers and its recomputation.
#pragma once

#include <span>

#include "graph/graph.h"
#include "mixed/pipelines.h"
#include "strategy/tree.h"

namespace weft {

// One pipeline, or several beside one another: routes, each with the micro-batches that it has. `graph`: of the whole
// model. Stages take the devices of their kind in order.
Strategy tree_of(std::span<const MixedPipeline> routes, const std::vector<DeviceKind>& kinds,
                 const LayerPattern& layers, const Graph& graph);
inline Strategy tree_of(const MixedPipeline& pipeline, const std::vector<DeviceKind>& kinds, const LayerPattern& layers,
                        const Graph& graph) {
  return tree_of(std::span(&pipeline, 1), kinds, layers, graph);
}

}  // namespace weft
