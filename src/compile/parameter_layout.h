// How parameters, gradients and optimizer state are cut beyond what operators need.
#pragma once

#include "strategy/layout.h"

namespace weft {

// The layout with the data-parallel axes `over` cutting it too: for each axis the dimension with the largest part that
// divides, else the longest, unevenly. A tensor too small or already cut by an axis stays as it is along it.
Layout split_over(const Layout& layout, const Mesh& mesh, MeshAxes over);

}  // namespace weft
