// Movement: reshape, transpose and expand follow from the notation; concat, split, slice and pad act along one
// dimension.
#include "reference/kernel_context.h"

namespace weft::reference {
namespace {

std::size_t dim_of(const Kernel& k) { return static_cast<std::size_t>(k.signature.attrs.integer("dim", 0)); }

// Calls f(global coordinates) for every element that a shard's operand holds.
template <class F>
void for_each_held(const Ref& ref, F&& f) {
  ref.block().for_each([&](const std::vector<std::int64_t>& global, std::size_t) { f(global); });
}

// Reshape, transpose, expand: out[…] (+)= in[…] where both are indexed by the same axes. An opaque stretch of a reshape
// has different axes on both sides; then elements correspond by their position in the flattened stretch.
void rename_axes(const Kernel& k) {
  const Ref in = k.in(0), out = k.out(0);
  bool same_axes = true;
  for (const Axis& axis : k.signature.axes) same_axes = same_axes && axis.kind != AxisKind::Whole;
  if (same_axes) {
    At at = k.start();
    k.for_each(k.all_axes(), at, [&] { out(at) += in(at); });
    return;
  }
  // Whole axes are never split, so the flattened position of a global coordinate is found in the whole tensor.
  const Shape from = in.operand().shape(), to = out.operand().shape();
  for_each_held(out, [&](const std::vector<std::int64_t>& global) {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < to.size(); ++d) flat = flat * to[d] + global[d];
    std::vector<std::int64_t> source(from.size());
    for (std::size_t d = from.size(); d-- > 0;) {
      source[d] = flat % from[d];
      flat /= from[d];
    }
    out.direct(global) = in.direct(source);
  });
}

// Concat joins, split cuts: part i of every block of the joined tensor is tensor i. Both directions of both operators.
void join(const Kernel& k) {
  const bool joined_is_output = (k.signature.kind == OpKind::Concat) == k.signature.gradient.empty();
  const std::size_t dim = dim_of(k);
  const std::int64_t outer = k.signature.attrs.integer("outer", 1);
  const std::string prefix = k.signature.kind == OpKind::Concat ? (k.signature.gradient.empty() ? "x" : "dx")
                                                                : (k.signature.gradient.empty() ? "y" : "dy");
  const Ref joined = joined_is_output ? k.out(0) : k.in(0);
  std::vector<std::int64_t> sizes = k.signature.attrs.integers("sizes", {});
  if (k.signature.kind == OpKind::Concat)
    for (const Operand& part : joined_is_output ? k.signature.inputs : k.signature.outputs)
      sizes.push_back(part.dims[dim].size / outer);
  const std::int64_t block = joined.operand().dims[dim].size / outer;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size(); offset += sizes[i++]) {
    const std::string name = prefix + std::to_string(i);
    const Ref part = joined_is_output ? k.in(name) : k.out(name);
    if (!part.present()) continue;  // the gradient of an unused part is zero
    for_each_held(part, [&](const std::vector<std::int64_t>& global) {
      std::vector<std::int64_t> target = global;
      target[dim] = global[dim] / sizes[i] * block + offset + global[dim] % sizes[i];
      if (joined_is_output)
        joined.direct(target) = part.direct(global);
      else
        part.direct(global) = joined.direct(target);
    });
  }
}

// Slice and pad: y[i] = x[begin + step·i] where that exists.
void slice(const Kernel& k) {
  const bool backward = !k.signature.gradient.empty();
  const Ref x = backward ? k.out("dx") : k.in("x"), y = backward ? k.in("dy") : k.out("y");
  const std::size_t dim = dim_of(k);
  const std::int64_t begin =
      k.signature.kind == OpKind::Pad ? -k.signature.attrs.integer("low", 0) : k.signature.attrs.integer("begin", 0);
  const std::int64_t step = k.signature.attrs.integer("step", 1);
  for_each_held(y, [&](const std::vector<std::int64_t>& global) {
    std::vector<std::int64_t> source = global;
    source[dim] = begin + step * global[dim];
    if (source[dim] < 0 || source[dim] >= x.operand().dims[dim].size) return;
    if (backward)
      x.direct(source) += y.direct(global);
    else
      y.direct(global) = x.direct(source);
  });
}

}  // namespace

bool run_movement(const Kernel& k) {
  switch (k.signature.kind) {
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Expand:
      rename_axes(k);
      return true;
    case OpKind::Concat:
    case OpKind::Split:
      join(k);
      return true;
    case OpKind::Slice:
    case OpKind::Pad:
      slice(k);
      return true;
    default:
      return false;
  }
}

}  // namespace weft::reference
