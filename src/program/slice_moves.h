// Which device sends which part to which when a tensor goes from one mesh to another: the slices of a transfer.
#pragma once

#include <vector>

#include "layout/layout.h"

namespace weft {

struct SliceMove {
  int from = 0, to = 0;  // positions in the two meshes
  std::int64_t elements = 0;

  bool operator==(const SliceMove&) const = default;
};

// For every device of `to`'s mesh, which device it gets each part from that it must hold: itself where it has the part,
// otherwise one of the holders, with receivers divided among them. By receiver, then by part. `from` has no partial sums.
// Cost: proportional to the overlapping pairs, by one-dimensional overlaps per dimension.
std::vector<SliceMove> slice_moves(const Layout& from, const Mesh& from_mesh, const Layout& to, const Mesh& to_mesh);

}  // namespace weft
