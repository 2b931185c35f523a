// What every kernel is written in: the part of one operator that a device executes, on tensors of that part.
//
// A local tensor has, along every dimension, the positions that the operator's axes give to the device, in their order
// (`positions`, graph/signature.h). So a dimension that is a product of axes is one in the local sizes too, and a tensor
// can be looked at with one dimension per axis. Kernels are functions: they give their outputs as new tensors, as views
// of their inputs, or, where the operator updates an input in place, as that input.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>
#include <vector>

#include "graph/operators.h"

namespace weft::runtime {

using at::Tensor;

class Kernel {
 public:
  // `salt`: what random masks are drawn from, besides the elements' global indices. 0: from those alone.
  Kernel(const Signature& of, const AxisSlices& shard, std::span<const Tensor> inputs, std::uint64_t salt)
      : signature(of), slices(shard), inputs_(inputs), salt_(salt), outputs_(of.outputs.size()) {}

  const Signature& signature;
  const AxisSlices& slices;

  // An undefined tensor where the operator has no such input: a gradient that nobody asked for.
  Tensor in(std::string_view name) const;
  const Tensor& in(std::size_t index) const { return inputs_[index]; }
  std::size_t input_count() const { return inputs_.size(); }
  bool gives(std::string_view name) const { return output_named(name) >= 0; }
  // Reshapes to the local shape of the output. Nothing happens where the operator has no such output.
  void give(std::string_view name, const Tensor& value);
  void give(std::size_t index, const Tensor& value);
  // The same, with one dimension per axis of `order`, which the output may lack (they are summed) or have in another
  // order.
  void give_by_axes(std::size_t index, const Tensor& value, std::vector<int> order);
  std::vector<Tensor> outputs() && { return std::move(outputs_); }

  bool backward() const { return !signature.gradient.empty(); }
  int axis(std::string_view name) const;  // must be there
  bool has_axis(std::string_view name) const { return signature.axis_named(name) >= 0; }
  std::int64_t size(std::string_view name) const { return slices[static_cast<std::size_t>(axis(name))].size(); }
  std::int64_t whole_size(std::string_view name) const {
    return signature.axes[static_cast<std::size_t>(axis(name))].size;
  }
  bool is_whole(int axis) const;
  Shape shape_of(const Operand& operand) const { return local_shape(signature, operand, slices); }
  const Operand& output(std::string_view name) const;

  // The axes that index an operand, in the order of its dimensions, and its tensor with one dimension for each.
  static std::vector<int> axes_of(const Operand& operand);
  Tensor by_axes(const Operand& operand, const Tensor& tensor) const;
  // The same in the order of `order`, with a dimension of 1 for axes that the operand lacks.
  Tensor aligned(const Operand& operand, const Tensor& tensor, const std::vector<int>& order) const;

  // The global positions of the device's part of an axis: int64, one dimension.
  Tensor positions_of(int axis) const;
  // The place within the device's part of global positions along an axis; `held`: whether it has them. Where it has
  // not, the place is 0.
  struct Found {
    Tensor place, held;
  };
  Found find(int axis, const Tensor& positions) const;

  double number(std::string_view name, double fallback) const { return signature.attrs.number(name, fallback); }
  std::int64_t integer(std::string_view name, std::int64_t fallback) const {
    return signature.attrs.integer(name, fallback);
  }
  std::uint64_t salt() const { return salt_; }

 private:
  int output_named(std::string_view name) const;

  std::span<const Tensor> inputs_;
  const std::uint64_t salt_;
  std::vector<Tensor> outputs_;
};

using KernelFunction = void (*)(Kernel&);

// What a step is given with (learning rate, number of the step, scale of the loss) is in the host's memory also where
// other tensors are on a GPU: a kernel reads its value without waiting for one.
bool in_host_memory(const Operand& input);

// Of an operator and its backward products; null: there is none.
KernelFunction kernel_for(const Signature& signature);

// One per family of operators; null: not of it.
KernelFunction contraction_kernel(OpKind kind);
KernelFunction attention_kernel(OpKind kind);
KernelFunction window_kernel(OpKind kind);
KernelFunction normalisation_kernel(OpKind kind);
KernelFunction pointwise_kernel(OpKind kind);
KernelFunction movement_kernel(OpKind kind);
KernelFunction routing_kernel(OpKind kind);
KernelFunction training_kernel(OpKind kind);

// A function of one variable, and the gradient of its input.
Tensor unary_value(std::string_view fn, const Tensor& x, const Attrs& attrs);
Tensor unary_gradient(std::string_view fn, const Tensor& dy, const Tensor& x, const Attrs& attrs);

}  // namespace weft::runtime
