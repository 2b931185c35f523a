#include "run/kernel.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "base/check.h"

namespace weft::runtime {

Tensor Kernel::in(std::string_view name) const {
  for (std::size_t i = 0; i < signature.inputs.size(); ++i)
    if (signature.inputs[i].name == name) return inputs_[i];
  return {};
}

int Kernel::output_named(std::string_view name) const {
  for (std::size_t i = 0; i < signature.outputs.size(); ++i)
    if (signature.outputs[i].name == name) return static_cast<int>(i);
  return -1;
}

const Operand& Kernel::output(std::string_view name) const {
  const int index = output_named(name);
  WEFT_CHECK(index >= 0, "{} has no output {}", name_of(signature.kind), name);
  return signature.outputs[static_cast<std::size_t>(index)];
}

void Kernel::give(std::string_view name, const Tensor& value) {
  if (const int index = output_named(name); index >= 0) give(static_cast<std::size_t>(index), value);
}

void Kernel::give(std::size_t index, const Tensor& value) {
  const Shape shape = shape_of(signature.outputs[index]);
  outputs_[index] = value.sizes() == at::IntArrayRef(shape) ? value : value.reshape(shape);
}

void Kernel::give_by_axes(std::size_t index, const Tensor& value, std::vector<int> order) {
  const std::vector<int> wanted = axes_of(signature.outputs[index]);
  std::vector<std::int64_t> summed, permutation;
  std::vector<int> left;
  for (std::size_t d = 0; d < order.size(); ++d)
    if (std::find(wanted.begin(), wanted.end(), order[d]) == wanted.end())
      summed.push_back(static_cast<std::int64_t>(d));
    else
      left.push_back(order[d]);
  Tensor result = summed.empty() ? value : value.sum(summed);
  for (int each : wanted) permutation.push_back(std::find(left.begin(), left.end(), each) - left.begin());
  give(index, result.permute(permutation));
}

int Kernel::axis(std::string_view name) const {
  const int index = signature.axis_named(name);
  WEFT_CHECK(index >= 0, "{} has no axis {}", name_of(signature.kind), name);
  return index;
}

bool Kernel::is_whole(int axis) const {
  return slices[static_cast<std::size_t>(axis)].size() == signature.axes[static_cast<std::size_t>(axis)].size;
}

std::vector<int> Kernel::axes_of(const Operand& operand) {
  std::vector<int> axes;
  for (const DimIndex& dim : operand.dims) axes.insert(axes.end(), dim.factors.begin(), dim.factors.end());
  return axes;
}

Tensor Kernel::by_axes(const Operand& operand, const Tensor& tensor) const {
  std::vector<std::int64_t> sizes;
  for (int each : axes_of(operand)) sizes.push_back(slices[static_cast<std::size_t>(each)].size());
  return tensor.sizes() == at::IntArrayRef(sizes) ? tensor : tensor.reshape(sizes);
}

Tensor Kernel::aligned(const Operand& operand, const Tensor& tensor, const std::vector<int>& order) const {
  const std::vector<int> own = axes_of(operand);
  std::vector<std::int64_t> permutation, sizes;
  for (int each : order) {
    const auto found = std::find(own.begin(), own.end(), each);
    if (found != own.end()) permutation.push_back(found - own.begin());
    sizes.push_back(found != own.end() ? slices[static_cast<std::size_t>(each)].size() : 1);
  }
  WEFT_CHECK(permutation.size() == own.size(), "an operand of {} has axes beyond those asked for",
             name_of(signature.kind));
  return by_axes(operand, tensor).permute(permutation).reshape(sizes);
}

Tensor Kernel::positions_of(int axis) const {
  const AxisSlice& slice = slices[static_cast<std::size_t>(axis)];
  const std::int64_t size = signature.axes[static_cast<std::size_t>(axis)].size;
  const at::TensorOptions options =
      inputs_.empty() ? at::TensorOptions(at::kLong) : inputs_[0].options().dtype(at::kLong);
  const Tensor inner = at::arange(slice.begin, slice.end, options);
  if (slice.outer == 1) return inner;
  return (at::arange(slice.outer, options).unsqueeze(1) * (size / slice.outer) + inner).reshape({-1});
}

Kernel::Found Kernel::find(int axis, const Tensor& positions) const {
  const AxisSlice& slice = slices[static_cast<std::size_t>(axis)];
  const std::int64_t block = signature.axes[static_cast<std::size_t>(axis)].size / slice.outer,
                     width = slice.end - slice.begin;
  const Tensor inside = slice.outer == 1 ? positions : positions.remainder(block);
  const Tensor held = inside.ge(slice.begin).logical_and(inside.lt(slice.end));
  Tensor place = inside - slice.begin;
  if (slice.outer > 1) place = place + positions.div(block, "floor") * width;
  return {place.where(held, at::zeros_like(place)), held};
}

bool in_host_memory(const Operand& input) {
  return input.name == "lr" || input.name == "step" || input.name == "loss_scale";
}

KernelFunction kernel_for(const Signature& signature) {
  for (auto* family : {contraction_kernel, attention_kernel, window_kernel, normalisation_kernel, pointwise_kernel,
                       movement_kernel, routing_kernel, training_kernel})
    if (const KernelFunction function = family(signature.kind)) return function;
  return nullptr;
}

}  // namespace weft::runtime
