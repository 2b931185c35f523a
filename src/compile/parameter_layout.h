// How parameters, gradients and optimizer state are cut beyond what operators need.
#pragma once

#include <map>

#include "layout/layout.h"

namespace weft {

// The layout with the data-parallel axes `over` cutting it too, in the shares of `ratio` where it has the axis: for
// each axis the dimension with the largest part that divides, else the longest, in whole elements as near to the shares
// as they come. A tensor too small or already cut by an axis stays as it is along it.
Layout split_over(const Layout& layout, const Mesh& mesh, MeshAxes over, const std::map<int, Shares>& ratio = {});

}  // namespace weft
