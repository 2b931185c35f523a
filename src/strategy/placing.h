// A resolved strategy as input of plan_sharding and the compiler: all meshes have the same axes, with one choice per
// mesh axis and operator.
//
// The axes are those of the strategy's mesh, major first, then those that only meshes of single stages have, then
// place0, place1, … for individually placed operators, as many as the operator with the most degrees needs. An axis
// that a mesh lacks has one device there, cuts nothing and passes the decision on to larger meshes. If a stage's own
// mesh names its axes in another order, its devices keep their coordinates; the strategy's order determines which axis
// cuts first. Cost: linear in operators and in the devices of the meshes.
#pragma once

#include "strategy/resolve.h"

namespace weft {

// A route of micro-batches: its own stages and how operators are split on their meshes.
struct PlacedRoute {
  IdVec<OpId, MeshId> mesh_of;  // as Placing::mesh_of
  ShardingChoices choices;
};

struct PlacedStrategy {
  Placing placing;                               // a mesh per stage, then those of placed operators
  std::vector<PlacedRoute> routes;               // at least one, whose mesh_of is that of `placing`
  StorageChoice storage;                         // of the root; mesh axes are those of `placing`
  std::map<TensorId, StorageChoice> parameters;  // those whose storage differs from it
};

// An error if the meshes have too many different axes.
Result<PlacedStrategy> place(const ResolvedStrategy& strategy, const Graph& graph);

}  // namespace weft
