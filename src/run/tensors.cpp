#include "run/tensors.h"

#include <ATen/ops/empty.h>

#include "base/check.h"
#include "run/fused_attention.h"
#include "run/kernel.h"

namespace weft::runtime {

std::optional<at::ScalarType> stored_type(DType dtype, Numbers numbers) {
  if (is_floating(dtype) && numbers == Numbers::Float64) return at::kDouble;
  switch (dtype) {
    case DType::F64:
      return at::kDouble;
    case DType::F32:
      return at::kFloat;
    case DType::BF16:
      return at::kBFloat16;
    case DType::F16:
      return at::kHalf;
    case DType::I64:
      return at::kLong;
    case DType::I32:
      return at::kInt;
    case DType::U8:
      return at::kByte;
    default:
      return std::nullopt;
  }
}

namespace {

// Calls f(block of held, block of the part) for every combination of runs.
template <class F>
void for_each_block(const Tensor& held, const Runs& runs, const Tensor& part, const F& f, std::size_t dim = 0) {
  if (dim == runs.size()) return f(held, part);
  std::int64_t at = 0;
  const auto d = static_cast<std::int64_t>(dim);
  for (const Run& run : runs[dim]) {
    for_each_block(held.narrow(d, run.offset, run.length), runs, part.narrow(d, at, run.length), f, dim + 1);
    at += run.length;
  }
}

bool is_narrow(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

// What computes in narrow types as they are: what moves elements or keeps wide sums itself, and on a GPU, whose kernels
// compute with 32 bits inside, products and what treats elements by themselves. (Without units for them a processor's
// products are slow at best.)
bool is_native(const Signature& signature, const AxisSlices& slices, const Tensor& first) {
  const OpKind kind = signature.kind;
  if (movement_kernel(kind) || training_kernel(kind)) return true;
  if (first.is_cpu()) return false;
  switch (kind) {
    case OpKind::Attention:
      return has_fused_attention(signature, slices, first);
    case OpKind::Conv1d:
    case OpKind::Conv2d:
    case OpKind::LayerNorm:
    case OpKind::BatchNorm:
    case OpKind::Unary:
    case OpKind::Binary:
    case OpKind::Select:
    case OpKind::Glu:
    case OpKind::Bias:
    case OpKind::Dropout:
      return true;
    default:
      return contraction_kernel(kind) != nullptr;
  }
}

}  // namespace

void copy_out(const Tensor& held, const Runs& runs, const Tensor& part) {
  for_each_block(held, runs, part, [](const Tensor& from, const Tensor& to) { to.copy_(from); });
}
void copy_in(const Tensor& held, const Runs& runs, const Tensor& part) {
  for_each_block(held, runs, part, [](const Tensor& to, const Tensor& from) { to.copy_(from); });
}
void add_in(const Tensor& held, const Runs& runs, const Tensor& part) {
  for_each_block(held, runs, part, [](const Tensor& to, const Tensor& from) { to.add_(from); });
}

Tensor taken(const Tensor& held, const Runs& runs, const Shape& shape) {
  Tensor part = held;
  for (std::size_t d = 0; d < runs.size(); ++d) {
    if (runs[d].size() != 1) {
      part = at::empty(shape, held.options());
      copy_out(held, runs, part);
      return part;
    }
    part = part.narrow(static_cast<std::int64_t>(d), runs[d][0].offset, runs[d][0].length);
  }
  return part;
}

Tensor leaf_tensor(const LeafValues& values, TensorId leaf, std::int64_t step, std::int32_t micro_batch,
                   const Region& part, at::ScalarType type) {
  const Tensor exact = at::empty(part.shape(), at::TensorOptions(at::kDouble));
  values(leaf, step, micro_batch, part,
         {static_cast<double*>(exact.data_ptr()), static_cast<std::size_t>(exact.numel())});
  return exact.to(type);
}

std::vector<Tensor> compute(const Signature& signature, const AxisSlices& slices, std::span<const Tensor> inputs,
                            std::uint64_t salt, Numbers numbers) {
  const KernelFunction function = kernel_for(signature);
  WEFT_CHECK(function, "no kernel for {}", name_of(signature.kind));
  std::vector<Tensor> wide;
  if (!inputs.empty() && !is_native(signature, slices, inputs[0])) {
    bool narrow = false;
    for (const Tensor& input : inputs) narrow = narrow || is_narrow(input.scalar_type());
    if (narrow)
      for (const Tensor& input : inputs) wide.push_back(is_narrow(input.scalar_type()) ? input.to(at::kFloat) : input);
  }
  Kernel kernel(signature, slices, wide.empty() ? inputs : std::span<const Tensor>(wide), salt);
  function(kernel);
  std::vector<Tensor> outputs = std::move(kernel).outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    WEFT_CHECK(outputs[i].defined(), "the kernel of {} {} does not give {}", name_of(signature.kind),
               signature.gradient, signature.outputs[i].name);
    outputs[i] = outputs[i].to(*stored_type(signature.outputs[i].dtype, numbers));
  }
  return outputs;
}

}  // namespace weft::runtime
