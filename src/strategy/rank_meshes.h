// From the declaration of a mesh to devices: rank order, and the mesh of every pipeline rank.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "strategy/stages.h"

namespace weft {

// The violations of the declaration on this cluster; empty if it is valid.
std::vector<std::string> mesh_violations(const MeshDeclaration& mesh, const Cluster& cluster);

// The axes that split operators: all but the pipeline axis; one of size 1 if there are none.
std::vector<MeshAxis> operator_axes(const MeshDeclaration& mesh);

// The mesh of each pipeline rank; the declaration must be valid.
std::vector<Mesh> rank_meshes(const MeshDeclaration& mesh);

// All meshes of a strategy: its own, cut into pipeline ranks, and those of single stages. A stage without a mesh of its
// own has that of the other stages of its rank.
struct StrategyMeshes {
  // By stage; empty if the strategy's mesh is not valid. Stages of one pipeline rank have the same devices, in grids
  // that may differ.
  std::vector<Mesh> stages;
  std::vector<std::string> operator_axes;  // axes that split operators on some mesh, the strategy's first
  std::vector<std::string> names;          // of all axes, sorted
};
StrategyMeshes find_meshes(const Strategy& strategy, const Cluster& cluster, const Report& report);

}  // namespace weft
