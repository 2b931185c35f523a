#include "run/region.h"

#include <algorithm>

#include "base/check.h"

namespace weft::runtime {

Shape Region::shape() const {
  Shape shape;
  for (const std::vector<Range>& ranges : dims) {
    std::int64_t extent = 0;
    for (const Range& range : ranges) extent += range.end - range.begin;
    shape.push_back(extent);
  }
  return shape;
}

std::int64_t Region::elements() const {
  std::int64_t elements = 1;
  for (std::int64_t extent : shape()) elements *= extent;
  return elements;
}

Region region_of(const Layout& layout, const Mesh& mesh, int position) {
  Region region;
  for (const DimLayout& dim : layout.dims) region.dims.push_back(held_ranges(dim, mesh, position));
  return region;
}

Region whole_region(const Shape& shape) {
  Region region;
  for (std::int64_t extent : shape) region.dims.push_back({{0, extent}});
  return region;
}

Region touched(const Signature& signature, const Operand& operand, const AxisSlices& slices) {
  Region region;
  for (std::size_t d = 0; d < operand.dims.size(); ++d) {
    std::vector<Range>& ranges = region.dims.emplace_back();
    for (std::int64_t at : positions(signature, operand, d, slices))
      if (!ranges.empty() && ranges.back().end == at)
        ++ranges.back().end;
      else
        ranges.push_back({at, at + 1});
  }
  return region;
}

Region common(const Region& a, const Region& b) {
  WEFT_CHECK(a.dims.size() == b.dims.size());
  Region both;
  for (std::size_t d = 0; d < a.dims.size(); ++d) {
    std::vector<Range>& ranges = both.dims.emplace_back();
    std::size_t i = 0, j = 0;
    while (i < a.dims[d].size() && j < b.dims[d].size()) {
      const Range &left = a.dims[d][i], &right = b.dims[d][j];
      const Range overlap{std::max(left.begin, right.begin), std::min(left.end, right.end)};
      if (overlap.begin < overlap.end) ranges.push_back(overlap);
      ++(left.end < right.end ? i : j);
    }
  }
  return both;
}

Runs runs_of(const Region& part, const Region& held) {
  Runs runs(part.dims.size());
  for (std::size_t d = 0; d < part.dims.size(); ++d) {
    std::size_t at = 0;
    std::int64_t before = 0;  // positions held before held.dims[d][at]
    for (Range wanted : part.dims[d])
      while (wanted.begin < wanted.end) {
        while (at < held.dims[d].size() && held.dims[d][at].end <= wanted.begin) {
          before += held.dims[d][at].end - held.dims[d][at].begin;
          ++at;
        }
        WEFT_CHECK(at < held.dims[d].size() && held.dims[d][at].begin <= wanted.begin,
                   "a part reaches beyond what a device holds");
        const std::int64_t end = std::min(wanted.end, held.dims[d][at].end);
        const Run run{before + wanted.begin - held.dims[d][at].begin, end - wanted.begin};
        if (!runs[d].empty() && runs[d].back().offset + runs[d].back().length == run.offset)
          runs[d].back().length += run.length;
        else
          runs[d].push_back(run);
        wanted.begin = end;
      }
  }
  return runs;
}

}  // namespace weft::runtime
