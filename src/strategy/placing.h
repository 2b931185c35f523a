// A resolved strategy in the form that plan_sharding and the compiler take: every mesh with the same axes, one choice
// per mesh axis and operator.
//
// The axes are those of the strategy's mesh, major first, then those that only meshes of single stages have, then
// place0, place1, … for operators placed one by one, as many as the most degrees of one. An axis that a mesh lacks has
// one device there, cuts nothing and hands on what it would have cut. Where a stage's own mesh names its axes in
// another order, its devices keep their coordinates; the strategy's order says which axis cuts first.
// Cost: linear in operators and in the devices of the meshes.
#pragma once

#include "strategy/resolve.h"

namespace weft {

struct PlacedStrategy {
  Placing placing;  // a mesh per stage, then those of placed operators
  ShardingChoices choices;
  StorageChoice storage;                         // of the root; over the axes above
  std::map<TensorId, StorageChoice> parameters;  // those whose storage differs from it
};

// An error where the meshes have too many different axes.
Result<PlacedStrategy> place(const ResolvedStrategy& strategy, const Graph& graph);

}  // namespace weft
