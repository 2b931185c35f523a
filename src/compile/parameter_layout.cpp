#include "compile/parameter_layout.h"

namespace weft {

Layout split_over(const Layout& layout, const Mesh& mesh, MeshAxes over) {
  Layout result = layout;
  over &= ~split_axes(layout);
  for (int axis = 0; axis < static_cast<int>(mesh.axes().size()); ++axis) {
    const std::int64_t parts = mesh.axes()[static_cast<std::size_t>(axis)].size;
    if ((over >> axis & 1u) == 0 || parts == 1 || result.dims.empty()) continue;
    Factor* best = nullptr;
    std::int64_t best_size = 0;
    bool best_divides = false;
    for (DimLayout& dim : result.dims) {
      if (dim.empty()) continue;
      Factor& factor = dim.back();  // the innermost factor can always be cut again
      std::int64_t part = factor.size;
      bool even = true;
      for (const Cut& cut : factor.cuts) {
        even = even && cut.sizes.empty();
        part /= mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size;
      }
      if (!even) continue;
      const bool divides = part % parts == 0;
      if (std::pair(divides, part) > std::pair(best_divides, best_size)) {
        best = &factor;
        best_size = part;
        best_divides = divides;
      }
    }
    if (!best) continue;
    Cut cut{axis, {}};
    if (!best_divides)
      for (const AxisSlice& slice : split_evenly(Axis{"", best_size, AxisKind::Attribute, 1}, static_cast<int>(parts)))
        cut.sizes.push_back(slice.size());
    best->cuts.push_back(std::move(cut));
  }
  canonicalize(result, mesh);
  return result;
}

}  // namespace weft
