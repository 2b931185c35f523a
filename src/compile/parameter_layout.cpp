#include "compile/parameter_layout.h"

#include "base/check.h"

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

OpSharding sharding_for(const Signature& signature, const Layout& layout) {
  OpSharding sharding;
  sharding.mesh = layout.mesh;
  sharding.axes.resize(signature.axes.size());
  sharding.outer.assign(signature.axes.size(), 1);
  for (std::size_t axis = 0; axis < layout.partial.size(); ++axis)
    if (layout.partial[axis]) {  // contributions pass through: every operator here is linear in all it reads
      sharding.partial |= MeshAxes{1} << axis;
      sharding.partial_inputs = ~std::uint64_t{0};
    }
  const Operand& shaped = signature.inputs.front();
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    if (layout.dims[d].empty()) continue;
    const auto axis = static_cast<std::size_t>(shaped.dims[d].factors.at(0));
    const DimLayout& dim = layout.dims[d];
    WEFT_CHECK(dim.size() <= 2 && (dim.size() == 1 || dim[0].cuts.empty()), "a parameter cut on two levels");
    if (dim.size() == 2) sharding.outer[axis] = dim[0].size;
    sharding.axes[axis] = dim.back().cuts;
  }
  return sharding;
}

}  // namespace weft
