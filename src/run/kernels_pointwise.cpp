// Operators that treat elements, or pairs of them, by themselves.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <numbers>

#include "base/check.h"
#include "run/kernel.h"

namespace weft::runtime {
namespace {

Tensor as(const Tensor& condition, const Tensor& like) { return condition.to(like.scalar_type()); }

Tensor slope(std::string_view fn, const Tensor& x, double value, const Attrs& attrs) {
  if (fn == "relu2") return x.relu() * 2;
  if (fn == "square") return x * 2;
  if (fn == "log") return x.reciprocal();
  if (fn == "erf") return (x * x).neg().exp() * (2 * std::numbers::inv_sqrtpi);
  if (fn == "abs") return as(x.gt(0), x) * 2 - 1;
  if (fn == "leaky_relu") return as(x.gt(0), x) * (1 - value) + value;
  if (fn == "softplus") return x.sigmoid();
  if (fn == "sin") return x.cos();
  if (fn == "cos") return x.sin().neg();
  if (fn == "hardswish")
    return at::where(x.le(-3), at::zeros_like(x), at::where(x.ge(3), at::ones_like(x), (x * 2 + 3) / 6));
  if (fn == "hardsigmoid") return as(x.gt(-3).logical_and(x.lt(3)), x) / 6;
  if (fn == "clamp") return as(x.gt(attrs.number("low", -1)).logical_and(x.lt(attrs.number("high", 1))), x);
  WEFT_CHECK(false, "no kernel for the derivative of {}", fn);
}

}  // namespace

Tensor unary_value(std::string_view fn, const Tensor& x, const Attrs& attrs) {
  const double value = attrs.number("value", 1.0);
  if (fn == "identity" || fn == "cast") return x;
  if (fn == "scale") return x * value;
  if (fn == "neg") return x.neg();
  if (fn == "relu") return x.relu();
  if (fn == "relu2") return x.relu() * x.relu();
  if (fn == "tanh") return x.tanh();
  if (fn == "sigmoid") return x.sigmoid();
  if (fn == "exp") return x.exp();
  if (fn == "sqrt") return x.sqrt();
  if (fn == "rsqrt") return x.rsqrt();
  if (fn == "reciprocal") return x.reciprocal();
  if (fn == "softcap") return (x / value).tanh() * value;
  if (fn == "gelu") return at::gelu(x);
  if (fn == "gelu_tanh") return at::gelu(x, "tanh");
  if (fn == "silu") return at::silu(x);
  if (fn == "square") return x * x;
  if (fn == "log") return x.log();
  if (fn == "erf") return x.erf();
  if (fn == "abs") return x.abs();
  if (fn == "leaky_relu") return at::where(x.gt(0), x, x * value);
  if (fn == "softplus") return at::softplus(x);
  if (fn == "sin") return x.sin();
  if (fn == "cos") return x.cos();
  if (fn == "hardswish") return x * (x + 3).clamp(0, 6) / 6;
  if (fn == "hardsigmoid") return (x / 6 + 0.5).clamp(0, 1);
  if (fn == "clamp") return x.clamp(attrs.number("low", -1), attrs.number("high", 1));
  if (fn == "floor") return x.floor();
  if (fn == "ceil") return x.ceil();
  if (fn == "round") return x.round();
  if (fn == "sign") return x.sign();
  if (fn == "not") return x.eq(0);
  WEFT_CHECK(false, "no kernel for unary {}", fn);
}

Tensor unary_gradient(std::string_view fn, const Tensor& dy, const Tensor& x, const Attrs& attrs) {
  const double value = attrs.number("value", 1.0);
  if (fn == "relu") return at::threshold_backward(dy, x, 0);
  if (fn == "gelu") return at::gelu_backward(dy, x);
  if (fn == "gelu_tanh") return at::gelu_backward(dy, x, "tanh");
  if (fn == "silu") return at::silu_backward(dy, x);
  if (fn == "sigmoid") return at::sigmoid_backward(dy, x.sigmoid());
  return dy * slope(fn, x, value, attrs);
}

namespace {

// From the output, for functions whose backward product keeps only that.
Tensor gradient_from_output(std::string_view fn, const Tensor& dy, const Tensor& y, const Attrs& attrs) {
  const double value = attrs.number("value", 1.0);
  if (fn == "relu") return at::threshold_backward(dy, y, 0);
  if (fn == "tanh") return at::tanh_backward(dy, y);
  if (fn == "sigmoid") return at::sigmoid_backward(dy, y);
  if (fn == "exp") return dy * y;
  if (fn == "sqrt") return dy / y * 0.5;
  if (fn == "rsqrt") return dy * (y * y * y * -0.5);
  if (fn == "reciprocal") return dy * (y * y).neg();
  if (fn == "softcap") return at::tanh_backward(dy, y / value);
  WEFT_CHECK(false, "no kernel for the derivative of {} from its output", fn);
}

void unary(Kernel& k) {
  const std::string_view fn = k.signature.attrs.text("fn", "");
  if (!k.backward()) return k.give("y", unary_value(fn, k.in("x"), k.signature.attrs));
  const Tensor dy = k.in("dy"), x = k.in("x"), y = k.in("y");
  if (x.defined()) return k.give("dx", unary_gradient(fn, dy, x, k.signature.attrs));
  if (y.defined()) return k.give("dx", gradient_from_output(fn, dy, y, k.signature.attrs));
  k.give("dx", fn == "scale" ? dy * k.number("value", 1.0) : fn == "neg" ? dy.neg() : dy);
}

Tensor binary_value(std::string_view fn, const Tensor& a, const Tensor& b) {
  if (fn == "add") return a + b;
  if (fn == "sub") return a - b;
  if (fn == "mul") return a * b;
  if (fn == "div") return a / b;
  if (fn == "max") return at::maximum(a, b);
  if (fn == "min") return at::minimum(a, b);
  if (fn == "pow") return at::pow(a, b);
  if (fn == "equal") return a.eq(b);
  if (fn == "less") return a.lt(b);
  if (fn == "less_equal") return a.le(b);
  if (fn == "greater") return a.gt(b);
  if (fn == "greater_equal") return a.ge(b);
  if (fn == "and") return a.ne(0).logical_and(b.ne(0));
  if (fn == "or") return a.ne(0).logical_or(b.ne(0));
  WEFT_CHECK(false, "no kernel for binary {}", fn);
}

// dy times d y / d a, or d b, with the dimensions of dy.
Tensor binary_gradient(const Kernel& k, std::string_view fn, bool first) {
  const Tensor a = k.in("a"), b = k.in("b"), y = k.in("y"), dy = k.in("dy");
  if (fn == "add") return dy;
  if (fn == "sub") return first ? dy : dy.neg();
  if (fn == "mul") return dy * (first ? b : a);
  if (fn == "div") return first ? dy / b : dy * y.neg() / b;
  if (fn == "max") return dy * as(first ? a.gt(b) : b.ge(a), dy);
  if (fn == "min") return dy * as(first ? a.lt(b) : b.le(a), dy);
  if (fn == "pow") return first ? dy * b * at::pow(a, b - 1) : dy * y * a.log();
  WEFT_CHECK(false, "no kernel for the derivative of binary {}", fn);
}

// Operands broadcast as their local shapes do: a dimension of 1 is never split.
void binary(Kernel& k) {
  const std::string_view fn = k.signature.attrs.text("fn", "");
  if (!k.backward()) return k.give("y", binary_value(fn, k.in("a"), k.in("b")));
  k.give(0, binary_gradient(k, fn, k.gives("da")).sum_to_size(k.shape_of(k.signature.outputs[0])));
}

void select(Kernel& k) {
  const Tensor chosen = k.in("if").ne(0);
  if (!k.backward()) return k.give("y", at::where(chosen, k.in("a"), k.in("b")));
  const Tensor dy = k.in("dy");
  const Tensor kept = dy * as(k.gives("da") ? chosen : chosen.logical_not(), dy);
  k.give(0, kept.sum_to_size(k.shape_of(k.signature.outputs[0])));
}

void glu(Kernel& k) {
  const std::string_view fn = k.signature.attrs.text("fn", "silu");
  const bool packed = k.integer("packed", 0) != 0;
  Tensor gate = k.in("a"), up = k.in("b");
  std::vector<std::int64_t> halves;  // […, a, f]
  if (packed) {
    const Tensor x = k.in("x");
    halves.assign(x.sizes().begin(), x.sizes().end());
    halves.back() = 2;
    halves.push_back(x.size(-1) / 2);
    gate = x.reshape(halves).select(-2, 0);
    up = x.reshape(halves).select(-2, 1);
  }
  const Tensor value = unary_value(fn, gate, {});
  if (!k.backward()) return k.give("y", value * up);
  const Tensor dy = k.in("dy"), dgate = unary_gradient(fn, dy * up, gate, {}), dup = dy * value;
  if (packed) return k.give("dx", at::cat({dgate.unsqueeze(-2), dup.unsqueeze(-2)}, -2));
  k.give("da", dgate);
  k.give("db", dup);
}

void bias(Kernel& k) {
  const Operand& whole = k.backward() ? k.signature.inputs[0] : k.signature.outputs[0];
  const std::vector<int> order = Kernel::axes_of(whole);
  if (!k.backward()) return k.give("y", k.in("x") + k.aligned(k.signature.inputs[1], k.in("bias"), order));
  k.give_by_axes(0, k.by_axes(whole, k.in("dy")), order);
}

// Whether a number that is uniform in [0, 1), drawn from every element's index in the whole tensor (SplitMix64), is at
// least p: any part draws what one device would.
Tensor kept_on_cpu(const Kernel& k, double p) {
  const Shape shape = k.shape_of(k.signature.inputs[0]);
  const Tensor kept = at::empty(shape, at::TensorOptions(at::kBool));
  bool* next = static_cast<bool*>(kept.data_ptr());
  const std::vector<Axis>& axes = k.signature.axes;
  const auto all = [&](auto self, std::size_t d, std::uint64_t before) -> void {
    for (std::int64_t i = 0; i < k.slices[d].size(); ++i) {
      const std::uint64_t index = before * static_cast<std::uint64_t>(axes[d].size) +
                                  static_cast<std::uint64_t>(global_position(k.slices[d], axes[d].size, i));
      if (d + 1 < axes.size()) {
        self(self, d + 1, index);
        continue;
      }
      std::uint64_t z = (index + 1 + k.salt()) * 0x9e3779b97f4a7c15ULL;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      *next++ = static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53 >= p;
    }
  };
  if (kept.numel() > 0) all(all, 0, 0);
  return kept;
}

// The same by tensors of a GPU. Signed 64-bit arithmetic wraps; a shift to the right must not copy the sign.
Tensor kept_on_gpu(const Kernel& k, double p) {
  Tensor index;
  for (std::size_t d = 0; d < k.signature.axes.size(); ++d) {
    std::vector<std::int64_t> row(k.signature.axes.size(), 1);
    row[d] = -1;
    const Tensor along = k.positions_of(static_cast<int>(d)).reshape(row);
    index = index.defined() ? index * k.signature.axes[d].size + along : along;
  }
  const auto shifted = [](const Tensor& z, std::int64_t bits) {
    return z.bitwise_right_shift(at::Scalar(bits)).bitwise_and_(at::Scalar((std::int64_t{1} << (64 - bits)) - 1));
  };
  Tensor z = (index + (1 + static_cast<std::int64_t>(k.salt()))).mul_(static_cast<std::int64_t>(0x9e3779b97f4a7c15ULL));
  z.bitwise_xor_(shifted(z, 30)).mul_(static_cast<std::int64_t>(0xbf58476d1ce4e5b9ULL));
  z.bitwise_xor_(shifted(z, 27)).mul_(static_cast<std::int64_t>(0x94d049bb133111ebULL));
  const auto least = static_cast<std::int64_t>(std::ceil(p * 0x1.0p53));
  return shifted(z.bitwise_xor_(shifted(z, 31)), 11).ge(at::Scalar(least));
}

void dropout(Kernel& k) {
  const double p = k.number("p", 0.5), keep = 1 / (1 - p);
  if (k.backward()) {
    const Tensor dy = k.in("dy");
    return k.give("dx", (dy * as(k.in("mask"), dy)).mul_(keep));
  }
  const Tensor x = k.in("x"), mask = (x.is_cpu() ? kept_on_cpu(k, p) : kept_on_gpu(k, p)).reshape(x.sizes());
  k.give("mask", mask);
  k.give("y", (x * as(mask, x)).mul_(keep));
}

void rotary(Kernel& k) {
  const Tensor x = k.in(0);
  const std::int64_t head_dim = k.size("d"), rotary_dim = k.integer("rotary_dim", head_dim), half = rotary_dim / 2;
  const Tensor heads = x.reshape({k.size("b"), k.size("s"), k.size("h"), head_dim});
  Tensor tokens = k.positions_of(k.axis("s"));
  if (const std::int64_t parts = k.integer("zigzag", 1); parts > 1) {  // graph/token_order.h
    const std::int64_t chunk = k.whole_size("s") / (2 * parts);
    const Tensor chunk_at = tokens.div(chunk, "floor"), part = chunk_at.div(2, "floor");
    tokens = at::where(chunk_at.remainder(2).eq(0), part, 2 * parts - 1 - part) * chunk + tokens.remainder(chunk);
  }
  const at::TensorOptions exact = x.options().dtype(at::kDouble);
  const Tensor rate =
      (at::arange(half, exact) * (-2.0 / static_cast<double>(rotary_dim)) * std::log(k.number("base", 10000.0))).exp();
  const Tensor angle = tokens.to(at::kDouble).reshape({-1, 1, 1}) * rate;
  const Tensor cosine = angle.cos().to(x.scalar_type()),
               sine = (k.backward() ? -angle.sin() : angle.sin()).to(x.scalar_type());
  const Tensor low = heads.narrow(-1, 0, half), high = heads.narrow(-1, half, half);
  std::vector<Tensor> parts = {low * cosine - high * sine, high * cosine + low * sine};
  if (rotary_dim < head_dim) parts.push_back(heads.narrow(-1, rotary_dim, head_dim - rotary_dim));
  k.give(0, at::cat(parts, -1));
}

}  // namespace

KernelFunction pointwise_kernel(OpKind kind) {
  switch (kind) {
    case OpKind::Unary:
      return unary;
    case OpKind::Binary:
      return binary;
    case OpKind::Select:
      return select;
    case OpKind::Glu:
      return glu;
    case OpKind::Bias:
      return bias;
    case OpKind::Dropout:
      return dropout;
    case OpKind::Rotary:
      return rotary;
    default:
      return nullptr;
  }
}

}  // namespace weft::runtime
