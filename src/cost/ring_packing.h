// Link-disjoint rings over a few directly connected devices, as in a hybrid cube mesh or an xGMI mesh.
#pragma once

#include <vector>

namespace weft {

// lanes[a][b] = lanes[b][a]: parallel links between a and b, 0 for none. The largest set of rings through all devices
// that uses every lane at most once (each ring then runs in both directions); empty if there is no ring. A ring is an
// order of the devices that begins with 0. The search is exhaustive for up to eight devices of today's nodes, and
// bounded beyond that.
std::vector<std::vector<int>> pack_rings(const std::vector<std::vector<int>>& lanes);

}  // namespace weft
