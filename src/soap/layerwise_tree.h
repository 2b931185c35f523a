// Layer-wise plans as strategy trees, which `weft simulate --strategy` takes.
//
// The trees written here have one ZeRO stage for all layers and one mesh for a pipeline stage; recomputation may differ
// from layer to layer. `in_words_of_a_tree` leaves of a table what can be said so; what is found in it has a tree.
// (Rules could name a ZeRO stage for a layer; layers on meshes of their own they could not.)
#pragma once

#include <map>

#include "graph/graph.h"
#include "soap/layerwise.h"
#include "strategy/tree.h"

namespace weft {

// Options of this ZeRO stage (0 where there is nothing to spread), and no change of mesh from layer to layer.
LayerTable in_words_of_a_tree(const LayerTable& table, int zero);

// The best plan that a tree can say, of any ZeRO stage, with the tables that its options are of.
struct SaidPlan {
  LayerwisePipeline pipeline;
  std::map<std::int64_t, LayerTable> tables;  // by micro-batches
};
std::optional<SaidPlan> best_said(const LayerwiseProblem& problem);

// The graph is of the whole model. An error says what a tree has no words for.
Result<Strategy> to_tree(const LayerwisePipeline& pipeline, const LayerTable& table, const Graph& graph);

}  // namespace weft
