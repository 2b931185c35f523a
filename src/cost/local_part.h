// Sizes of an operator's local part: extents of its axes, elements and bytes of its operands, its matrix product.
#pragma once

#include <span>
#include <string_view>

#include "cost/product.h"
#include "graph/signature.h"

namespace weft {

// Bytes of an element.
inline double width_of(DType dtype) { return static_cast<double>(bits_of(dtype)) / 8; }

Alignment alignment_of(double bytes);

class LocalPart {
 public:
  // `extents` by axis; empty: all of every axis. Both arguments outlive the part.
  LocalPart(const Signature& signature, std::span<const std::int64_t> extents);

  const Signature& signature() const { return signature_; }
  bool backward() const { return !signature_.gradient.empty(); }

  double extent(int axis) const {
    return static_cast<double>(extents_.empty() ? signature_.axes[static_cast<std::size_t>(axis)].size
                                                : extents_[static_cast<std::size_t>(axis)]);
  }
  double extent(std::string_view axis) const;  // 1 where there is none
  double extent(const DimIndex& dim) const {
    double size = 1;
    for (int axis : dim.factors) size *= extent(axis);
    return dim.windowed() ? reach(dim, size) : size;
  }

  double elements(const Operand& operand) const {
    double count = 1;
    for (const DimIndex& dim : operand.dims) count *= extent(dim);
    return count;
  }
  double bytes(const Operand& operand) const { return elements(operand) * width_of(operand.dtype); }
  double bytes_in() const;
  double bytes_out() const;
  double bytes() const { return bytes_in() + bytes_out(); }

  double data_elements() const;  // of the largest operand that is not a weight
  double data_rows() const;      // of the largest operand, along its last dimension
  double indices() const;        // elements of the first integer input
  double window_elements() const;
  double pointwise_flops() const { return signature_.pointwise_per_element * data_elements(); }

  // The product of inputs 0 and 1: an axis of both and of the output is a batch axis, of one and the output m or n, of
  // both but not the output k. Kernel windows always belong to k.
  Product product() const;

 private:
  double reach(const DimIndex& dim, double windows) const;  // elements covered by that many windows along the dimension
  Alignment row_alignment(const Operand& operand, const AxisSet& batch) const;

  const Signature& signature_;
  std::span<const std::int64_t> extents_;
};

}  // namespace weft
