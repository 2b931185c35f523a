// From the declaration of a mesh to devices: rank order, and the part of every pipeline rank.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "strategy/stages.h"

namespace weft {

// What is wrong with the declaration on this cluster; nothing when it is sound.
std::vector<std::string> faults_of(const MeshDeclaration& mesh, const Cluster& cluster);

// The axes that split operators: all but the pipeline's; one of size 1 when there are none.
std::vector<MeshAxis> operator_axes(const MeshDeclaration& mesh);

// The mesh of each pipeline rank, of a sound declaration.
std::vector<Mesh> rank_meshes(const MeshDeclaration& mesh);

// All meshes of a strategy: its own, cut into pipeline ranks, and those of single stages. A stage without a mesh of its
// own has that of the other stages of its rank.
struct StrategyMeshes {
  // By stage; none when the strategy's mesh is not sound. Stages of one pipeline rank have the same devices, in grids
  // of their own where they say so.
  std::vector<Mesh> stages;
  std::vector<std::string> operator_axes;  // that split operators on some mesh, the strategy's first
  std::vector<std::string> names;          // of all axes, sorted
};
StrategyMeshes find_meshes(const Strategy& strategy, const Cluster& cluster, const Report& report);

}  // namespace weft
