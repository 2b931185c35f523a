#include "compile/parameter_layout.h"

namespace weft {

Layout split_over(const Layout& layout, const Mesh& mesh, MeshAxes over, const std::map<int, Shares>& ratio) {
  Layout result = layout;
  over &= ~split_axes(layout);
  if (over == 0) return result;
  const auto degree = [&](int axis) { return mesh.axes()[static_cast<std::size_t>(axis)].size; };
  for (int axis = 0; axis < static_cast<int>(mesh.axes().size()); ++axis) {
    const int parts = degree(axis);
    if ((over >> axis & 1u) == 0 || parts == 1 || result.dims.empty()) continue;
    const auto uneven = ratio.find(axis);
    Cut cut{axis, uneven == ratio.end() ? Shares{} : reduced(uneven->second)};
    const std::int64_t units = units_of(cut.shares, parts);
    Factor* best = nullptr;
    std::int64_t best_unit = 0;
    bool best_divides = false;
    for (DimLayout& dim : result.dims) {
      if (dim.empty()) continue;
      Factor& factor = dim.back();      // the innermost factor can always be cut again
      std::int64_t unit = factor.size;  // elements that all parts after its cuts are multiples of
      for (const Cut& before : factor.cuts) unit /= units_of(before.shares, degree(before.mesh_axis));
      const bool divides = unit % units == 0;
      if (std::pair(divides, unit) > std::pair(best_divides, best_unit)) {
        best = &factor;
        best_unit = unit;
        best_divides = divides;
      }
    }
    if (!best) continue;
    if (!best_divides)
      cut.shares = reduced(
          nearest_shares(best_unit, 1, cut.shares.empty() ? Shares(static_cast<std::size_t>(parts), 1) : cut.shares));
    best->cuts.push_back(std::move(cut));
  }
  canonicalize(result, mesh);
  return result;
}

}  // namespace weft
