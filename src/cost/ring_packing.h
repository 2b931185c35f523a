// Link-disjoint rings over a few devices that are joined directly, as in a hybrid cube mesh or an xGMI mesh.
#pragma once

#include <vector>

namespace weft {

// lanes[a][b] = lanes[b][a]: parallel links between a and b, 0 for none. The most rings through all devices that
// together use every lane at most once (each ring then runs both ways); none if no such ring exists. Rings are orders
// of the devices that begin with 0. The search is exhaustive for up to eight devices of today's nodes, and gives the
// best of a bounded search beyond that.
std::vector<std::vector<int>> pack_rings(const std::vector<std::vector<int>>& lanes);

}  // namespace weft
