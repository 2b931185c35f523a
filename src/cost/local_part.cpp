#include "cost/local_part.h"

#include <algorithm>

#include "base/check.h"
#include "graph/operators.h"

namespace weft {

Alignment alignment_of(double bytes) {
  const auto whole = static_cast<std::int64_t>(bytes);
  return whole % 16 == 0 ? Alignment::Full : whole % 4 == 0 ? Alignment::Word : Alignment::None;
}

LocalPart::LocalPart(const Signature& signature, std::span<const std::int64_t> extents)
    : signature_(signature), extents_(extents) {
  WEFT_CHECK(extents_.empty() || extents_.size() == signature_.axes.size(), "{} extents for {} axes of {}",
             extents_.size(), signature_.axes.size(), name_of(signature_.kind));
}

double LocalPart::extent(std::string_view axis) const {
  const int found = signature_.axis_named(axis);
  return found < 0 ? 1 : extent(found);
}

double LocalPart::reach(const DimIndex& dim, double windows) const {
  const Axis& axis = signature_.axes[static_cast<std::size_t>(dim.factors[0])];
  const auto whole = static_cast<double>(dim.size);
  if (windows >= static_cast<double>(axis.size)) return whole;
  const double one = static_cast<double>(dim.window.dilation) * (extent(dim.window.kernel) - 1) + 1;
  return windows == 0 ? 0 : std::min(whole, static_cast<double>(dim.window.stride) * (windows - 1) + one);
}

double LocalPart::bytes_in() const {
  double sum = 0;
  for (const Operand& input : signature_.inputs) sum += bytes(input);
  return sum;
}

double LocalPart::bytes_out() const {
  double sum = 0;
  for (const Operand& output : signature_.outputs) sum += bytes(output);
  return sum;
}

double LocalPart::data_elements() const {
  double data = 1, any = 1;
  for (int i = 0; i < signature_.operand_count(); ++i) {
    const Operand& operand = signature_.operand(i);
    any = std::max(any, elements(operand));
    if (!operand.weight) data = std::max(data, elements(operand));
  }
  return data > 1 ? data : any;
}

double LocalPart::data_rows() const {
  const Operand* largest = nullptr;
  for (int i = 0; i < signature_.operand_count(); ++i) {
    const Operand& operand = signature_.operand(i);
    if (!operand.dims.empty() && (!largest || elements(operand) > elements(*largest))) largest = &operand;
  }
  return largest ? elements(*largest) / std::max(1.0, extent(largest->dims.back())) : 1;
}

double LocalPart::indices() const {
  for (const Operand& input : signature_.inputs)
    if (!is_floating(input.dtype)) return elements(input);
  return 0;
}

double LocalPart::window_elements() const {
  AxisSet kernels;
  // The smaller image is the output of the forward operator.
  double least = data_elements(), window = 1;
  for (int i = 0; i < signature_.operand_count(); ++i) {
    const Operand& operand = signature_.operand(i);
    if (operand.dims.size() == 4) least = std::min(least, elements(operand));
    for (const DimIndex& dim : operand.dims)
      if (dim.windowed()) kernels.insert(dim.window.kernel);
  }
  for (int axis = 0; axis < static_cast<int>(signature_.axes.size()); ++axis)
    if (kernels.contains(axis)) window *= extent(axis);
  return window * least;
}

// Of a row, and of the part of it that one product of a batch begins with: heads that lie beside one another.
Alignment LocalPart::row_alignment(const Operand& operand, const AxisSet& batch) const {
  if (operand.dims.empty()) return Alignment::Full;
  const DimIndex& row = operand.dims.back();
  const double width = width_of(operand.dtype);
  Alignment worst = alignment_of(extent(row) * width);
  double inner = width;
  for (std::size_t i = row.factors.size(); i-- > 0; inner *= extent(row.factors[i]))
    if (batch.contains(row.factors[i])) worst = std::max(worst, alignment_of(inner));
  return worst;
}

Product LocalPart::product() const {
  const Operand &a = signature_.inputs[0], &b = signature_.inputs[1], &out = signature_.outputs[0];
  const AxisSet in_a = a.axes(), in_b = b.axes(), in_out = out.axes();
  AxisSet kernels;
  for (const DimIndex& dim : out.dims)
    if (dim.windowed()) kernels.insert(dim.window.kernel);
  Product product;
  AxisSet batch;
  for (int axis = 0; axis < static_cast<int>(signature_.axes.size()); ++axis) {
    const bool left = in_a.contains(axis), right = in_b.contains(axis);
    const double size = extent(axis);
    if (kernels.contains(axis) || !in_out.contains(axis))
      product.k *= left || right ? size : 1;
    else if (left && right) {
      product.batch *= size;
      batch.insert(axis);
    } else if (left)
      product.m *= size;
    else if (right)
      product.n *= size;
  }
  product.bytes = bytes();
  product.alignment = std::max({row_alignment(a, batch), row_alignment(b, batch), row_alignment(out, batch)});
  for (const Operand* factor : {&a, &b})
    product.turned += !factor->dims.empty() && in_out.contains(factor->dims.back().factors[0]);
  return product;
}

}  // namespace weft
