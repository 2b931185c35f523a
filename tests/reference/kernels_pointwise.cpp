// Pointwise operators.
#include <algorithm>
#include <cmath>

#include "graph/token_order.h"
#include "reference/kernel_context.h"

namespace weft::reference {
namespace {

constexpr double kPi = 3.14159265358979323846;

struct Function {
  double value, slope;
};

// A unary function and its derivative at x.
Function unary_at(std::string_view fn, double x, const Attrs& attrs) {
  const double value = attrs.number("value", 1.0);
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  if (fn == "identity" || fn == "cast") return {x, 1};
  if (fn == "scale") return {x * value, value};
  if (fn == "neg") return {-x, -1};
  if (fn == "relu") return {std::max(x, 0.0), x > 0 ? 1.0 : 0.0};
  if (fn == "relu2") return {x > 0 ? x * x : 0, x > 0 ? 2 * x : 0};
  if (fn == "tanh") return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x)};
  if (fn == "sigmoid") return {sigmoid(x), sigmoid(x) * (1 - sigmoid(x))};
  if (fn == "exp") return {std::exp(x), std::exp(x)};
  if (fn == "sqrt") return {std::sqrt(x), 0.5 / std::sqrt(x)};
  if (fn == "rsqrt") return {1 / std::sqrt(x), -0.5 * std::pow(x, -1.5)};
  if (fn == "reciprocal") return {1 / x, -1 / (x * x)};
  if (fn == "softcap") return {value * std::tanh(x / value), 1 - std::tanh(x / value) * std::tanh(x / value)};
  if (fn == "gelu")
    return {0.5 * x * (1 + std::erf(x / std::sqrt(2.0))),
            0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(2 * kPi)};
  if (fn == "gelu_tanh") {
    const double c = std::sqrt(2 / kPi), u = c * (x + 0.044715 * x * x * x), t = std::tanh(u);
    return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)};
  }
  if (fn == "silu") return {x * sigmoid(x), sigmoid(x) * (1 + x * (1 - sigmoid(x)))};
  if (fn == "square") return {x * x, 2 * x};
  if (fn == "log") return {std::log(x), 1 / x};
  if (fn == "erf") return {std::erf(x), 2 / std::sqrt(kPi) * std::exp(-x * x)};
  if (fn == "abs") return {std::fabs(x), x > 0 ? 1.0 : -1.0};
  if (fn == "leaky_relu") return {x > 0 ? x : value * x, x > 0 ? 1 : value};
  if (fn == "softplus") return {std::log1p(std::exp(x)), sigmoid(x)};
  if (fn == "sin") return {std::sin(x), std::cos(x)};
  if (fn == "cos") return {std::cos(x), -std::sin(x)};
  if (fn == "hardswish")
    return {x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6, x <= -3 ? 0 : x >= 3 ? 1 : (2 * x + 3) / 6};
  if (fn == "hardsigmoid") return {x <= -3 ? 0 : x >= 3 ? 1 : x / 6 + 0.5, x <= -3 || x >= 3 ? 0 : 1.0 / 6};
  if (fn == "clamp") {
    const double low = attrs.number("low", -1), high = attrs.number("high", 1);
    return {std::clamp(x, low, high), x > low && x < high ? 1.0 : 0.0};
  }
  if (fn == "floor") return {std::floor(x), 0};
  if (fn == "ceil") return {std::ceil(x), 0};
  if (fn == "round") return {std::nearbyint(x), 0};
  if (fn == "sign") return {x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0, 0};
  if (fn == "not") return {x == 0 ? 1.0 : 0.0, 0};
  WEFT_CHECK(false, "unary {}", fn);
}

// The derivative from the output, for functions whose backward keeps only that.
double slope_from_output(std::string_view fn, double y, const Attrs& attrs) {
  const double value = attrs.number("value", 1.0);
  if (fn == "relu") return y > 0 ? 1 : 0;
  if (fn == "tanh") return 1 - y * y;
  if (fn == "sigmoid") return y * (1 - y);
  if (fn == "exp") return y;
  if (fn == "sqrt") return 0.5 / y;
  if (fn == "rsqrt") return -0.5 * y * y * y;
  if (fn == "reciprocal") return -y * y;
  if (fn == "softcap") return 1 - y / value * (y / value);
  return unary_at(fn, 0, attrs).slope;  // linear: the same everywhere
}

void unary(const Kernel& k) {
  const std::string_view fn = k.signature.attrs.text("fn", "");
  At at = k.start();
  k.for_each(k.all_axes(), at, [&] {
    if (k.signature.gradient.empty())
      k.out("y")(at) = unary_at(fn, k.in("x")(at), k.signature.attrs).value;
    else if (k.in("x").present())
      k.out("dx")(at) = k.in("dy")(at)*unary_at(fn, k.in("x")(at), k.signature.attrs).slope;
    else
      k.out("dx")(at) = k.in("dy")(at)*slope_from_output(fn, k.in("y").get(at), k.signature.attrs);
  });
}

double binary_at(std::string_view fn, double a, double b) {
  if (fn == "add") return a + b;
  if (fn == "sub") return a - b;
  if (fn == "mul") return a * b;
  if (fn == "div") return a / b;
  if (fn == "max") return std::max(a, b);
  if (fn == "min") return std::min(a, b);
  if (fn == "pow") return std::pow(a, b);
  if (fn == "equal") return a == b;
  if (fn == "less") return a < b;
  if (fn == "less_equal") return a <= b;
  if (fn == "greater") return a > b;
  if (fn == "greater_equal") return a >= b;
  if (fn == "and") return a != 0 && b != 0;
  if (fn == "or") return a != 0 || b != 0;
  WEFT_CHECK(false, "binary {}", fn);
}

// d y / d a or d b times dy, from what the backward product reads.
double binary_slope(const Kernel& k, std::string_view fn, const At& at) {
  const bool first = k.out("da").present();
  const double a = k.in("a").get(at), b = k.in("b").get(at), y = k.in("y").get(at);
  if (fn == "add") return 1;
  if (fn == "sub") return first ? 1 : -1;
  if (fn == "mul") return first ? b : a;
  if (fn == "div") return first ? 1 / b : -y / b;
  if (fn == "max") return (first ? a > b : b >= a) ? 1 : 0;
  if (fn == "min") return (first ? a < b : b <= a) ? 1 : 0;
  if (fn == "pow") return first ? b * std::pow(a, b - 1) : y * std::log(a);
  WEFT_CHECK(false, "binary {}", fn);
}

void binary(const Kernel& k) {
  const std::string_view fn = k.signature.attrs.text("fn", "");
  At at = k.start();
  k.for_each(k.all_axes(), at, [&] {
    if (k.signature.gradient.empty())
      k.out("y")(at) = binary_at(fn, k.in("a")(at), k.in("b")(at));
    else
      k.out(0)(at) += k.in("dy")(at)*binary_slope(k, fn, at);
  });
}

void select(const Kernel& k) {
  At at = k.start();
  k.for_each(k.all_axes(), at, [&] {
    const bool chosen = k.in("if")(at) != 0;
    if (k.signature.gradient.empty())
      k.out("y")(at) = chosen ? k.in("a")(at) : k.in("b")(at);
    else if (chosen == k.out("da").present())
      k.out(0)(at) += k.in("dy")(at);
  });
}

void glu(const Kernel& k) {
  const std::string fn(k.signature.attrs.text("fn", "silu"));
  const bool packed = k.signature.attrs.integer("packed", 0) != 0, backward = !k.signature.gradient.empty();
  std::vector<std::size_t> loop;
  for (std::size_t a = 0; a < k.signature.axes.size(); ++a)
    if (!packed || k.signature.axes[a].name != "a") loop.push_back(a);
  At at = k.start();
  k.for_each(loop, at, [&] {
    At gate = at, up = at;
    if (packed) up[k.axis("a")] = 1;
    const Ref a = packed ? k.in("x") : k.in("a"), b = packed ? k.in("x") : k.in("b");
    const Function f = unary_at(fn, a(gate), {});
    if (!backward) {
      k.out("y")(at) = f.value * b(up);
      return;
    }
    const double dy = k.in("dy")(at);
    (packed ? k.out("dx") : k.out("da"))(gate) = dy * f.slope * b(up);
    (packed ? k.out("dx") : k.out("db"))(up) = dy * f.value;
  });
}

void bias(const Kernel& k) {
  At at = k.start();
  k.for_each(k.all_axes(), at, [&] {
    if (k.signature.gradient.empty())
      k.out("y")(at) = k.in("x")(at) + k.in("bias")(at);
    else
      k.out("dbias")(at) += k.in("dy")(at);
  });
}

// Uniform in [0, 1) from a global index: the same element draws the same number on every shard.
double hashed_uniform(std::uint64_t index) {
  std::uint64_t z = (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

void dropout(const Kernel& k) {
  const double p = k.signature.attrs.number("p", 0.5), keep = 1 / (1 - p);
  At at = k.start();
  k.for_each(k.all_axes(), at, [&] {
    if (!k.signature.gradient.empty()) {
      k.out("dx")(at) = k.in("dy")(at)*k.in("mask")(at)*keep;
      return;
    }
    std::uint64_t index = 0;
    for (std::size_t a = 0; a < at.size(); ++a)
      index = index * static_cast<std::uint64_t>(k.signature.axes[a].size) + static_cast<std::uint64_t>(at[a]);
    const double mask = hashed_uniform(index) >= p ? 1 : 0;
    k.out("mask")(at) = mask;
    k.out("y")(at) = k.in("x")(at)*mask * keep;
  });
}

void rotary(const Kernel& k) {
  const bool backward = !k.signature.gradient.empty();
  const Ref x = backward ? k.in("dy") : k.in("x"), y = backward ? k.out("dx") : k.out("y");
  const std::int64_t head_dim = k.size("d"), rotary_dim = k.signature.attrs.integer("rotary_dim", head_dim),
                     half = rotary_dim / 2;
  const double base = k.signature.attrs.number("base", 10000.0);
  const std::int64_t zigzag = k.signature.attrs.integer("zigzag", 1);
  const std::size_t d = k.axis("d");
  At at = k.start();
  k.for_each(k.axes({"b", "s", "h"}), at, [&] {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(token_position(at[k.axis("s")], k.size("s"), zigzag)) *
                           std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
      const double sine = backward ? -std::sin(angle) : std::sin(angle), cosine = std::cos(angle);
      At low = at, high = at;
      low[d] = i;
      high[d] = i + half;
      y(low) = x(low) * cosine - x(high) * sine;
      y(high) = x(high) * cosine + x(low) * sine;
    }
    for (std::int64_t i = rotary_dim; i < head_dim; ++i) {
      At rest = at;
      rest[d] = i;
      y(rest) = x(rest);
    }
  });
}

}  // namespace

bool run_pointwise(const Kernel& k) {
  switch (k.signature.kind) {
    case OpKind::Unary:
      unary(k);
      return true;
    case OpKind::Binary:
      binary(k);
      return true;
    case OpKind::Select:
      select(k);
      return true;
    case OpKind::Glu:
      glu(k);
      return true;
    case OpKind::Bias:
      bias(k);
      return true;
    case OpKind::Dropout:
      dropout(k);
      return true;
    case OpKind::Rotary:
      rotary(k);
      return true;
    default:
      return false;
  }
}

}  // namespace weft::reference
