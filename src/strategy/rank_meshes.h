// From the declaration of a mesh to devices: rank order, and the part of every pipeline rank.
#pragma once

#include <string>
#include <vector>

#include "strategy/tree.h"

namespace weft {

// What is wrong with the declaration on this cluster; nothing when it is sound.
std::vector<std::string> faults_of(const MeshDeclaration& mesh, const Cluster& cluster);

// The axes that split operators: all but the pipeline's; one of size 1 when there are none.
std::vector<MeshAxis> operator_axes(const MeshDeclaration& mesh);

// The mesh of each pipeline rank, of a sound declaration.
std::vector<Mesh> rank_meshes(const MeshDeclaration& mesh);

}  // namespace weft
