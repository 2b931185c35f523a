// Layer-wise plans as strategy trees, which `weft simulate --strategy` reads.
//
// These trees have one ZeRO stage for all layers and one mesh per pipeline stage; recomputation may differ from layer
// to layer. `expressible_options` restricts a table to such plans, so that every plan found in it has a tree. (Rules of
// a tree could give single layers a ZeRO stage, but not a mesh.)
#pragma once

#include <map>

#include "graph/graph.h"
#include "soap/layerwise.h"
#include "strategy/tree.h"

namespace weft {

// Options of this ZeRO stage (0 where dp is 1), with changes of mesh between layers forbidden.
LayerTable expressible_options(const LayerTable& table, int zero);

// The best plan that a tree can express, over all ZeRO stages, with the tables that its options refer to.
struct ExpressiblePlan {
  LayerwisePipeline pipeline;
  std::map<std::int64_t, LayerTable> tables;  // by number of micro-batches
};
std::optional<ExpressiblePlan> best_expressible(const LayerwiseProblem& problem);

// `graph`: of the whole model. An error names what a tree cannot express.
Result<Strategy> to_tree(const LayerwisePipeline& pipeline, const LayerTable& table, const Graph& graph);

}  // namespace weft
