#include "graph/axis.h"

#include "base/check.h"

namespace weft {

std::string_view name_of(AxisKind kind) {
  switch (kind) {
    case AxisKind::Sample:
      return "sample";
    case AxisKind::Attribute:
      return "attribute";
    case AxisKind::Parameter:
      return "parameter";
    case AxisKind::Reduction:
      return "reduction";
    case AxisKind::Whole:
      return "whole";
  }
  return "?";
}

std::vector<AxisSlice> split_evenly(const Axis& axis, int parts, std::int64_t outer) {
  WEFT_CHECK(parts > 0 && outer > 0 && axis.size % outer == 0, "axis {} of {} in {} blocks", axis.name, axis.size,
             outer);
  const std::int64_t inner = axis.size / outer;
  const std::int64_t granule = inner % axis.granule == 0 ? axis.granule : 1;
  const std::int64_t granules = inner / granule;
  std::vector<std::int64_t> sizes;
  for (int part = 0; part < parts; ++part)
    sizes.push_back((granules / parts + (part < granules % parts ? 1 : 0)) * granule);
  return split_by_sizes(axis, sizes, outer);
}

std::vector<AxisSlice> split_by_sizes(const Axis& axis, const std::vector<std::int64_t>& sizes, std::int64_t outer) {
  std::vector<AxisSlice> slices;
  std::int64_t at = 0;
  for (std::int64_t size : sizes) {
    slices.push_back({outer, at, at + size});
    at += size;
  }
  WEFT_CHECK(at * outer == axis.size, "sizes of axis {} sum to {} of {} in {} blocks", axis.name, at, axis.size, outer);
  return slices;
}

}  // namespace weft
