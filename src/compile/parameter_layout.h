// How parameters, gradients and optimizer state are cut beyond what operators need.
#pragma once

#include <map>

#include "layout/layout.h"

namespace weft {

// The layout cut by the data-parallel axes `over` as well, in the shares of `ratio` where it has the axis. Each axis
// cuts the dimension with the largest part that divides; if none divides, the longest, in whole elements as near to the
// shares as possible. An axis that already cuts the tensor is left out, and so is one for which it is too small.
Layout split_over(const Layout& layout, const Mesh& mesh, MeshAxes over, const std::map<int, Shares>& ratio = {});

}  // namespace weft
