// Which elements of a tensor a device holds, and where in its memory they lie.
//
// A region is a product: of every dimension some ranges of positions. What a layout gives to a device is one, and so is
// what two devices have in common; every message of a collective or a transfer is such a common part, its elements in
// row-major order.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/layout.h"

namespace weft::runtime {

struct Region {
  std::vector<std::vector<Range>> dims;

  Shape shape() const;
  std::int64_t elements() const;
  bool operator==(const Region&) const = default;
};

Region region_of(const Layout& layout, const Mesh& mesh, int position);
Region whole_region(const Shape& shape);
// What a part of an operator touches of an operand.
Region touched(const Signature& signature, const Operand& operand, const AxisSlices& slices);
Region common(const Region& a, const Region& b);

// Of every dimension, the stretches of a device's local index that a part of its region takes up, in order.
struct Run {
  std::int64_t offset = 0, length = 0;

  bool operator==(const Run&) const = default;
};
using Runs = std::vector<std::vector<Run>>;
// `part` must lie within `held`.
Runs runs_of(const Region& part, const Region& held);

}  // namespace weft::runtime
