// Operators that move or rename elements. What they act along is never split, except in whole blocks.
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/check.h"
#include "run/kernel.h"

namespace weft::runtime {
namespace {

// The axes of both sides are the same, in the same order, so parts are in the same order too.
void reshape(Kernel& k) { k.give(0, k.in(0)); }

void transpose(Kernel& k) {
  k.give_by_axes(0, k.by_axes(k.signature.inputs[0], k.in(0)), Kernel::axes_of(k.signature.inputs[0]));
}

// Forward repeats along an axis that the input lacks; backward sums over it.
void expand(Kernel& k) {
  const Operand &from = k.signature.inputs[0], &to = k.signature.outputs[0];
  if (k.backward()) return k.give_by_axes(0, k.by_axes(from, k.in(0)), Kernel::axes_of(from));
  const std::vector<int> order = Kernel::axes_of(to);
  std::vector<std::int64_t> sizes;
  for (int axis : order) sizes.push_back(k.slices[static_cast<std::size_t>(axis)].size());
  k.give(0, k.aligned(from, k.in(0), order).expand(sizes));
}

std::int64_t dim_of(const Kernel& k) { return k.integer("dim", 0); }

// A dimension seen as blocks: [… · p …] → […, o, p, …]. The device may have some of the blocks.
Tensor in_blocks(const Tensor& tensor, std::int64_t dim, std::int64_t block) {
  std::vector<std::int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  const auto at = sizes.begin() + dim;
  sizes.insert(at + 1, block);
  sizes[static_cast<std::size_t>(dim)] /= block;
  return tensor.reshape(sizes);
}

// Concat and split, forward and backward: part i of every block of the joined tensor is tensor i.
void join(Kernel& k) {
  const bool concat = k.signature.kind == OpKind::Concat, joins = concat != k.backward();
  const std::int64_t dim = dim_of(k), outer = k.integer("outer", 1);
  const Operand& joined = joins ? k.signature.outputs[0] : k.signature.inputs[0];
  std::vector<std::int64_t> sizes = k.signature.attrs.integers("sizes", {});
  const auto d = static_cast<std::size_t>(dim);
  if (concat)
    for (const Operand& part : joins ? k.signature.inputs : k.signature.outputs)
      sizes.push_back(part.dims[d].size / outer);
  const std::int64_t block = joined.dims[d].size / outer;
  const std::string prefix = concat ? (joins ? "x" : "dx") : (joins ? "dy" : "y");
  if (!joins) {
    const Tensor whole = in_blocks(k.in(0), dim, block);
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < sizes.size(); offset += sizes[i++])
      k.give(prefix + std::to_string(i), whole.narrow(dim + 1, offset, sizes[i]));
    return;
  }
  const Shape shape = k.shape_of(joined);
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Tensor part = k.in(prefix + std::to_string(i));
    if (part.defined()) {
      parts.push_back(in_blocks(part, dim, sizes[i]));
      continue;
    }
    Shape missing = shape;  // the gradient of a part that nobody uses
    missing[d] = shape[d] / block * sizes[i];
    parts.push_back(in_blocks(at::zeros(missing, k.in(0).options()), dim, sizes[i]));
  }
  k.give(0, at::cat(parts, dim + 1));
}

void slice(Kernel& k) {
  const std::int64_t dim = dim_of(k), begin = k.integer("begin", 0), step = k.integer("step", 1);
  const Operand& whole = k.backward() ? k.signature.outputs[0] : k.signature.inputs[0];
  const std::int64_t end = k.integer("end", whole.dims[static_cast<std::size_t>(dim)].size);
  if (!k.backward()) return k.give("y", k.in("x").slice(dim, begin, end, step));
  const Tensor dy = k.in("dy"), dx = at::zeros(k.shape_of(whole), dy.options());
  dx.slice(dim, begin, end, step).copy_(dy);
  k.give("dx", dx);
}

void pad(Kernel& k) {
  const Tensor x = k.in(0);
  const std::int64_t sign = k.backward() ? -1 : 1, after = x.dim() - 1 - dim_of(k);
  std::vector<std::int64_t> pads(static_cast<std::size_t>(2 * after), 0);  // of the dimensions behind
  pads.push_back(sign * k.integer("low", 0));
  pads.push_back(sign * k.integer("high", 0));
  k.give(0, at::constant_pad_nd(x, pads, 0));
}

}  // namespace

KernelFunction movement_kernel(OpKind kind) {
  switch (kind) {
    case OpKind::Reshape:
      return reshape;
    case OpKind::Transpose:
      return transpose;
    case OpKind::Expand:
      return expand;
    case OpKind::Concat:
    case OpKind::Split:
      return join;
    case OpKind::Slice:
      return slice;
    case OpKind::Pad:
      return pad;
    default:
      return nullptr;
  }
}

}  // namespace weft::runtime
