#include "graph/signature.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace weft {

std::string_view name_of(Reducer reducer) {
  switch (reducer) {
    case Reducer::Sum:
      return "sum";
    case Reducer::Max:
      return "max";
    case Reducer::LogSumExp:
      return "logsumexp";
    case Reducer::SoftmaxMerge:
      return "softmax-merge";
  }
  return "?";
}

AxisSet Operand::axes() const {
  AxisSet set;
  for (const DimIndex& dim : dims) {
    for (int axis : dim.factors) set.insert(axis);
    if (dim.windowed()) set.insert(dim.window.kernel);
  }
  return set;
}

Shape Operand::shape() const {
  Shape shape;
  shape.reserve(dims.size());
  for (const DimIndex& dim : dims) shape.push_back(dim.size);
  return shape;
}

std::int64_t Operand::elements() const {
  std::int64_t elements = 1;
  for (const DimIndex& dim : dims) elements *= dim.size;
  return elements;
}

int Signature::axis_named(std::string_view name) const {
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis].name == name) return static_cast<int>(axis);
  return -1;
}

Flops contraction_flops(const Signature& signature) {
  double flops = 0;
  for (AxisSet set : signature.contractions) {
    double macs = 1;
    for (std::size_t axis = 0; axis < signature.axes.size(); ++axis)
      if (set.contains(static_cast<int>(axis))) macs *= static_cast<double>(signature.axes[axis].size);
    flops += 2 * macs;
  }
  // Experts of unequal load: the rows are those of the busiest device, the work is that of the mean.
  return {flops / signature.attrs.number("imbalance", 1)};
}

Flops pointwise_flops(const Signature& signature) {
  // Over the largest operand that is not a weight; weights count only if there are no others (optimizer steps, norms of
  // gradients).
  std::int64_t data = 1, any = 1;
  for (int i = 0; i < signature.operand_count(); ++i) {
    const Operand& operand = signature.operand(i);
    any = std::max(any, operand.elements());
    if (!operand.weight) data = std::max(data, operand.elements());
  }
  return {signature.pointwise_per_element * static_cast<double>(data > 1 ? data : any)};
}

namespace {

// A view (outputs that alias inputs while no arithmetic is done) touches no memory.
bool moves_nothing(const Signature& signature) {
  return signature.contractions.empty() && signature.pointwise_per_element == 0 &&
         std::all_of(signature.outputs.begin(), signature.outputs.end(),
                     [](const Operand& output) { return output.aliases >= 0; });
}

}  // namespace

Bytes bytes_read(const Signature& signature) {
  Bytes total;
  if (moves_nothing(signature)) return total;
  for (const Operand& input : signature.inputs) total += input.bytes();
  return total;
}

Bytes bytes_written(const Signature& signature) {
  Bytes total;
  if (moves_nothing(signature)) return total;
  for (const Operand& output : signature.outputs) total += output.bytes();
  return total;
}

std::string notation_of(const Signature& signature) {
  const auto print_operand = [&](const Operand& operand) {
    std::string text = operand.name + "[";
    for (std::size_t i = 0; i < operand.dims.size(); ++i) {
      const DimIndex& dim = operand.dims[i];
      if (i > 0) text += ',';
      if (dim.factors.empty()) text += '1';
      for (std::size_t f = 0; f < dim.factors.size(); ++f)
        text += (f > 0 ? "." : "") + signature.axes[static_cast<std::size_t>(dim.factors[f])].name;
      if (dim.windowed()) text += "~" + signature.axes[static_cast<std::size_t>(dim.window.kernel)].name;
    }
    return text + "]";
  };
  std::string text;
  for (const Operand& input : signature.inputs) text += print_operand(input) + " ";
  text += "->";
  for (const Operand& output : signature.outputs) text += " " + print_operand(output);
  return text;
}

std::string axis_sizes_of(const Signature& signature) {
  std::string text;
  for (const Axis& axis : signature.axes) text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis.name, axis.size);
  return text;
}

AxisSlices whole_axes(const Signature& signature) {
  AxisSlices slices;
  slices.reserve(signature.axes.size());
  for (const Axis& axis : signature.axes) slices.push_back(whole_axis(axis));
  return slices;
}

namespace {

// [first, last) of a windowed dimension that a contiguous slice of its axis touches, clipped to the dimension.
std::pair<std::int64_t, std::int64_t> window_range(const Signature& signature, const DimIndex& dim,
                                                   const AxisSlices& slices) {
  const AxisSlice& slice = slices[static_cast<std::size_t>(dim.factors[0])];
  const std::int64_t kernel = signature.axes[static_cast<std::size_t>(dim.window.kernel)].size;
  WEFT_CHECK(slice.outer == 1, "windowed axes split into contiguous ranges");
  if (slice.begin == slice.end) return {0, 0};
  const Axis& axis = signature.axes[static_cast<std::size_t>(dim.factors[0])];
  // A whole axis touches the whole dimension, so that borders that no window reaches still belong to a shard.
  if (slice.begin == 0 && slice.end == axis.size) return {0, dim.size};
  const std::int64_t first = dim.window.stride * slice.begin - dim.window.pad_low;
  const std::int64_t last =
      dim.window.stride * (slice.end - 1) + dim.window.dilation * (kernel - 1) - dim.window.pad_low + 1;
  const std::int64_t low = std::clamp<std::int64_t>(first, 0, dim.size);
  return {low, std::clamp<std::int64_t>(last, low, dim.size)};
}

}  // namespace

std::vector<std::int64_t> positions(const Signature& signature, const Operand& operand, std::size_t d,
                                    const AxisSlices& slices) {
  const DimIndex& dim = operand.dims[d];
  std::vector<std::int64_t> result;
  if (dim.windowed()) {
    const auto [first, last] = window_range(signature, dim, slices);
    for (std::int64_t at = first; at < last; ++at) result.push_back(at);
    return result;
  }
  result.push_back(0);
  for (int axis : dim.factors) {
    const AxisSlice& slice = slices[static_cast<std::size_t>(axis)];
    const std::int64_t size = signature.axes[static_cast<std::size_t>(axis)].size;
    std::vector<std::int64_t> next;
    next.reserve(result.size() * static_cast<std::size_t>(slice.size()));
    for (std::int64_t outer : result)
      for (std::int64_t i = 0; i < slice.size(); ++i) next.push_back(outer * size + global_position(slice, size, i));
    result = std::move(next);
  }
  return result;
}

Shape local_shape(const Signature& signature, const Operand& operand, const AxisSlices& slices) {
  Shape shape;
  shape.reserve(operand.dims.size());
  for (const DimIndex& dim : operand.dims) {
    if (dim.windowed()) {
      const auto [first, last] = window_range(signature, dim, slices);
      shape.push_back(last - first);
      continue;
    }
    std::int64_t size = 1;
    for (int axis : dim.factors) size *= slices[static_cast<std::size_t>(axis)].size();
    shape.push_back(size);
  }
  return shape;
}

}  // namespace weft
