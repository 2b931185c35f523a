#include "models/onnx_fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <unordered_map>

#include "base/checked.h"
#include "models/onnx_shapes.h"

namespace weft {
namespace {

using Folded = Result<std::optional<OnnxTensor>>;
using Constants = std::span<const OnnxTensor* const>;

std::int64_t count_of(const Shape& shape) { return checked_product(shape).value_or(kMaxKnownElements + 1); }
bool small(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent >= 0; }) &&
         count_of(shape) <= kMaxKnownElements;
}

OnnxTensor make_constant(DType dtype, Shape shape) { return {.type = {dtype, std::move(shape)}, .known = true}; }

void append(OnnxTensor& to, const OnnxTensor& from, std::size_t i) {
  if (to.floating())
    to.reals.push_back(from.number(i));
  else
    to.integers.push_back(from.integers[i]);
}

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<std::int64_t>(shape[d], 1);
  return strides;
}

// Strides with which a tensor of `shape` is read as if broadcast to `to`.
Shape broadcast_strides(const Shape& shape, const Shape& to) {
  Shape strides(to.size(), 0);
  const Shape own = strides_of(shape);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) strides[to.size() - shape.size() + d] = own[d];
  return strides;
}

// Calls visit(offsets) for every index of `shape` in row-major order, one offset per list of strides.
template <class F>
void for_each_index(const Shape& shape, std::vector<std::int64_t> offsets, const std::vector<Shape>& strides,
                    F&& visit) {
  Shape index(shape.size(), 0);
  for (std::int64_t left = count_of(shape); left > 0; --left) {
    visit(offsets);
    for (std::size_t d = shape.size(); d-- > 0;) {
      for (std::size_t i = 0; i < strides.size(); ++i) offsets[i] += strides[i][d];
      if (++index[d] < shape[d]) break;
      for (std::size_t i = 0; i < strides.size(); ++i) offsets[i] -= strides[i][d] * shape[d];
      index[d] = 0;
    }
  }
}

// The elements of `from` at base + Σ index·stride.
OnnxTensor strided(const OnnxTensor& from, Shape shape, std::int64_t base, const Shape& strides) {
  OnnxTensor result = make_constant(from.type.dtype, std::move(shape));
  for_each_index(result.type.shape, {base}, {strides},
                 [&](const std::vector<std::int64_t>& at) { append(result, from, static_cast<std::size_t>(at[0])); });
  return result;
}

OnnxTensor reshaped(const OnnxTensor& from, Shape shape) {
  OnnxTensor result = from;
  result.type.shape = std::move(shape);
  return result;
}

struct Arithmetic {
  std::function<std::optional<std::int64_t>(std::int64_t, std::int64_t)> integers;  // nothing: overflow, division by 0
  std::function<double(double, double)> reals;
  bool comparison = false;
};

const Arithmetic* arithmetic_named(const std::string& op) {
  using I = std::int64_t;
  static const std::unordered_map<std::string, Arithmetic> table = {
      {"Add", {checked_add, std::plus<double>()}},
      {"Sub",
       {[](I a, I b) -> std::optional<I> {
          I difference = 0;
          return __builtin_sub_overflow(a, b, &difference) ? std::nullopt : std::optional(difference);
        },
        std::minus<double>()}},
      {"Mul", {checked_mul, std::multiplies<double>()}},
      {"Div",
       {[](I a, I b) -> std::optional<I> {
          return b == 0 || (b == -1 && a == std::numeric_limits<I>::min()) ? std::nullopt : std::optional(a / b);
        },
        std::divides<double>()}},
      {"Mod",
       {[](I a, I b) -> std::optional<I> {
          if (b == 0 || b == -1) return b == 0 ? std::nullopt : std::optional<I>(0);
          const I rest = a % b;
          return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
        },
        [](double a, double b) { return std::fmod(a, b); }}},
      {"Min",
       {[](I a, I b) { return std::optional(std::min(a, b)); }, [](double a, double b) { return std::min(a, b); }}},
      {"Max",
       {[](I a, I b) { return std::optional(std::max(a, b)); }, [](double a, double b) { return std::max(a, b); }}},
      {"Pow",
       {[](I a, I b) {
          const double power = std::pow(a, b);
          return std::fabs(power) < 0x1p53 ? std::optional(static_cast<I>(power)) : std::nullopt;  // beyond: inexact
        },
        [](double a, double b) { return std::pow(a, b); }}},
      {"Equal", {[](I a, I b) { return std::optional<I>(a == b); }, std::equal_to<double>(), true}},
      {"Less", {[](I a, I b) { return std::optional<I>(a < b); }, std::less<double>(), true}},
      {"LessOrEqual", {[](I a, I b) { return std::optional<I>(a <= b); }, std::less_equal<double>(), true}},
      {"Greater", {[](I a, I b) { return std::optional<I>(a > b); }, std::greater<double>(), true}},
      {"GreaterOrEqual", {[](I a, I b) { return std::optional<I>(a >= b); }, std::greater_equal<double>(), true}},
      {"And", {[](I a, I b) { return std::optional<I>(a && b); }, std::logical_and<double>(), true}},
      {"Or", {[](I a, I b) { return std::optional<I>(a || b); }, std::logical_or<double>(), true}},
  };
  const auto at = table.find(op);
  return at == table.end() ? nullptr : &at->second;
}

Folded fold_arithmetic(const Arithmetic& arithmetic, const OnnxTensor& a, const OnnxTensor& b) {
  WEFT_TRY(Shape shape, broadcast_shapes(a.type.shape, b.type.shape));
  if (!small(shape)) return std::optional<OnnxTensor>();
  const bool floating = a.floating() || b.floating();
  const DType kept = a.floating() || !b.floating() ? a.type.dtype : b.type.dtype;
  OnnxTensor result = make_constant(arithmetic.comparison ? DType::U8 : kept, std::move(shape));
  bool failed = false;
  for_each_index(
      result.type.shape, {0, 0},
      {broadcast_strides(a.type.shape, result.type.shape), broadcast_strides(b.type.shape, result.type.shape)},
      [&](const std::vector<std::int64_t>& at) {
        const auto i = static_cast<std::size_t>(at[0]), j = static_cast<std::size_t>(at[1]);
        if (floating) {
          const double value = arithmetic.reals(a.number(i), b.number(j));
          if (arithmetic.comparison)
            result.integers.push_back(value != 0);
          else
            result.reals.push_back(value);
        } else {
          const auto value = arithmetic.integers(a.integers[i], b.integers[j]);
          failed = failed || !value;
          result.integers.push_back(value.value_or(0));
        }
      });
  if (failed) return error("the shape computation divides by zero or overflows 64 bits");
  return std::optional(std::move(result));
}

Folded fold_unary(const std::string& op, const OnnxTensor& x) {
  struct Unary {
    double (*of)(double);
    bool of_integers = false;  // ONNX defines the others of floating-point numbers only
  };
  static const std::unordered_map<std::string, Unary> table = {
      {"Neg", {[](double v) { return -v; }, true}},
      {"Abs", {[](double v) { return std::fabs(v); }, true}},
      {"Not", {[](double v) { return v == 0 ? 1.0 : 0.0; }, true}},
      {"Sqrt", {[](double v) { return std::sqrt(v); }}},
      {"Floor", {[](double v) { return std::floor(v); }}},
      {"Ceil", {[](double v) { return std::ceil(v); }}},
      {"Exp", {[](double v) { return std::exp(v); }}},
      {"Log", {[](double v) { return std::log(v); }}},
      {"Reciprocal", {[](double v) { return 1 / v; }}}};
  const auto at = table.find(op);
  if (at == table.end()) return std::optional<OnnxTensor>();
  const Unary& unary = at->second;
  if (!x.floating() && !unary.of_integers) return error("takes floating-point numbers, not {}", print(x.type));
  OnnxTensor result = x;
  for (double& value : result.reals) value = unary.of(value);
  for (std::int64_t& value : result.integers) {
    if (std::fabs(static_cast<double>(value)) > 0x1p53) return error("the shape computation overflows");
    value = static_cast<std::int64_t>(unary.of(static_cast<double>(value)));
  }
  return std::optional(std::move(result));
}

Folded fold_cast(const OnnxNode& node, const OnnxTensor& x) {
  const auto dtype = onnx_dtype(node.attrs.integer("to", 0));
  if (!dtype) return error("casts to element type {}, which is not supported", node.attrs.integer("to", 0));
  OnnxTensor result = make_constant(*dtype, x.type.shape);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (result.floating()) {
      result.reals.push_back(x.number(i));
    } else if (!x.floating()) {
      result.integers.push_back(x.integers[i]);
    } else {
      if (!(std::fabs(x.reals[i]) < 9e18)) return error("casts {} to an integer", x.reals[i]);
      result.integers.push_back(static_cast<std::int64_t>(x.reals[i]));
    }
  }
  return std::optional(std::move(result));
}

Folded fold_gather(const OnnxNode& node, const OnnxTensor& from, const OnnxTensor& indices) {
  WEFT_TRY(const std::size_t axis, resolve_axis(node.attrs.integer("axis", 0), from.type.shape.size()));
  if (indices.floating()) return error("gathers with indices that are not integers");
  Shape shape(from.type.shape.begin(), from.type.shape.begin() + static_cast<std::ptrdiff_t>(axis));
  shape.insert(shape.end(), indices.type.shape.begin(), indices.type.shape.end());
  shape.insert(shape.end(), from.type.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, from.type.shape.end());
  if (!small(shape)) return std::optional<OnnxTensor>();
  const std::int64_t extent = from.type.shape[axis], inner = strides_of(from.type.shape)[axis];
  OnnxTensor result = make_constant(from.type.dtype, std::move(shape));
  if (from.size() == 0 || indices.size() == 0) return std::optional(std::move(result));
  for (std::int64_t outer = 0; outer < static_cast<std::int64_t>(from.size()) / (extent * inner); ++outer)
    for (const std::int64_t index : indices.integers) {
      if (index < -extent || index >= extent) return error("gathers element {} of {}", index, extent);
      const std::int64_t at = (outer * extent + (index < 0 ? index + extent : index)) * inner;
      for (std::int64_t i = 0; i < inner; ++i) append(result, from, static_cast<std::size_t>(at + i));
    }
  return std::optional(std::move(result));
}

Folded fold_concat(const OnnxNode& node, Constants inputs) {
  const Shape& first = inputs[0]->type.shape;
  WEFT_TRY(const std::size_t axis, resolve_axis(node.attrs.integer("axis", 0), first.size()));
  Shape shape = first;
  shape[axis] = 0;
  std::int64_t outer = 1;
  for (std::size_t d = 0; d < axis; ++d) outer *= first[d];
  for (const OnnxTensor* input : inputs) {
    Shape expected = input->type.shape;
    if (expected.size() != first.size() || input->floating() != inputs[0]->floating())
      return error("joins {} and {}", print(inputs[0]->type), print(input->type));
    shape[axis] += expected[axis];
    expected[axis] = first[axis];
    if (expected != first) return error("joins {} and {}", print(inputs[0]->type), print(input->type));
  }
  if (!small(shape)) return std::optional<OnnxTensor>();
  OnnxTensor result = make_constant(inputs[0]->type.dtype, std::move(shape));
  for (std::int64_t o = 0; o < outer; ++o)
    for (const OnnxTensor* input : inputs) {
      const std::size_t block = input->size() / static_cast<std::size_t>(outer);
      for (std::size_t i = 0; i < block; ++i) append(result, *input, static_cast<std::size_t>(o) * block + i);
    }
  return std::optional(std::move(result));
}

Folded fold_slice(const OnnxNode& node, Constants inputs) {
  const auto list = [&](std::size_t i, std::string_view name) {
    return i < inputs.size() && inputs[i] ? inputs[i]->integers : node.attrs.integers(name, {});
  };
  const OnnxTensor& x = *inputs[0];
  WEFT_TRY(const std::vector<SliceRange> ranges,
           resolve_slice(x.type.shape, list(1, "starts"), list(2, "ends"), list(3, "axes"), list(4, "steps")));
  Shape shape = x.type.shape, strides = strides_of(x.type.shape);
  std::int64_t base = 0;
  for (const SliceRange& range : ranges) {
    base += range.begin * strides[range.axis];
    strides[range.axis] *= range.step;
    shape[range.axis] = range.count;
  }
  return std::optional(strided(x, std::move(shape), base, strides));
}

Folded fold_expand(const OnnxTensor& x, const Shape& wanted) {
  WEFT_TRY(Shape shape, broadcast_shapes(x.type.shape, wanted));
  if (!small(shape)) return std::optional<OnnxTensor>();
  const Shape strides = broadcast_strides(x.type.shape, shape);
  return std::optional(strided(x, std::move(shape), 0, strides));
}

Folded fold_where(const OnnxTensor& condition, const OnnxTensor& a, const OnnxTensor& b) {
  WEFT_TRY(Shape shape, broadcast_shapes(a.type.shape, b.type.shape));
  WEFT_TRY(shape, broadcast_shapes(shape, condition.type.shape));
  if (!small(shape) || condition.floating() || a.floating() != b.floating()) return std::optional<OnnxTensor>();
  OnnxTensor result = make_constant(a.type.dtype, shape);
  for_each_index(shape, {0, 0, 0},
                 {broadcast_strides(condition.type.shape, shape), broadcast_strides(a.type.shape, shape),
                  broadcast_strides(b.type.shape, shape)},
                 [&](const std::vector<std::int64_t>& at) {
                   const bool first = condition.integers[static_cast<std::size_t>(at[0])] != 0;
                   append(result, first ? a : b, static_cast<std::size_t>(first ? at[1] : at[2]));
                 });
  return std::optional(std::move(result));
}

Folded fold_range(const OnnxTensor& start, const OnnxTensor& limit, const OnnxTensor& delta) {
  if (!start.scalar() || !limit.scalar() || !delta.scalar()) return error("takes three scalars");
  if (*delta.scalar() == 0) return error("counts in steps of 0");
  for (const OnnxTensor* bound : {&start, &limit, &delta})
    if (!(std::fabs(*bound->scalar()) < 0x1p53)) return error("counts to {}", *bound->scalar());
  const double steps = std::ceil((*limit.scalar() - *start.scalar()) / *delta.scalar());
  const auto count = static_cast<std::int64_t>(std::clamp(steps, 0.0, 0x1p53));
  OnnxTensor result{.type = {start.type.dtype, {count}}, .known = count <= kMaxKnownElements};
  for (std::int64_t i = 0; result.known && i < count; ++i) {
    const double value = *start.scalar() + static_cast<double>(i) * *delta.scalar();
    if (result.floating())
      result.reals.push_back(value);
    else
      result.integers.push_back(static_cast<std::int64_t>(value));
  }
  return std::optional(std::move(result));
}

Folded fold_constant_of_shape(const OnnxNode& node, const OnnxTensor& extents) {
  if (extents.floating() || extents.type.shape.size() != 1)
    return error("takes a list of sizes, not {}", print(extents.type));
  for (const std::int64_t extent : extents.integers)
    if (extent < 0) return error("makes a dimension of {}", extent);
  OnnxTensor result{.type = {node.value ? node.value->type.dtype : DType::F32, extents.integers}};
  if (!checked_product(extents.integers))
    return error("makes a shape [{}] too large to count", fmt::join(extents.integers, ","));
  result.known = small(extents.integers) && (!node.value || node.value->scalar());
  if (!result.known) return std::optional(std::move(result));
  const auto count = static_cast<std::size_t>(count_of(extents.integers));
  if (result.floating())
    result.reals.assign(count, node.value ? node.value->number(0) : 0.0);
  else
    result.integers.assign(count, node.value ? node.value->integers[0] : 0);
  return std::optional(std::move(result));
}

// ReduceProd, ReduceSum, ReduceMax, ReduceMin of all elements: sizes from shapes.
Folded fold_reduce_all(const OnnxNode& node, Constants inputs) {
  const OnnxTensor& x = *inputs[0];
  const bool all = x.type.shape.size() <= 1;
  if (!all || x.size() == 0 || x.floating()) return std::optional<OnnxTensor>();
  const std::string op = node.op == "ReduceProd" ? "Mul" : node.op == "ReduceSum" ? "Add" : node.op.substr(6);
  OnnxTensor total =
      make_constant(x.type.dtype, node.attrs.integer("keepdims", 1) ? Shape(x.type.shape.size(), 1) : Shape());
  total.integers = {x.integers[0]};
  for (std::size_t i = 1; i < x.size(); ++i) {
    const auto value = arithmetic_named(op)->integers(total.integers[0], x.integers[i]);
    if (!value) return error("the shape computation overflows 64 bits");
    total.integers[0] = *value;
  }
  return std::optional(std::move(total));
}

}  // namespace

Result<std::optional<OnnxTensor>> fold(const OnnxNode& node, Constants inputs) {
  const std::optional<OnnxTensor> nothing;
  if (node.op == "Constant") return node.value ? Folded(node.value) : Folded(error("has no value that Weft can read"));
  if (inputs.empty() || !inputs[0]) return nothing;
  for (const OnnxTensor* input : inputs)
    if (input && !input->known) return nothing;
  const OnnxTensor& x = *inputs[0];
  const auto given = [&](std::size_t i) { return i < inputs.size() && inputs[i]; };
  // Axes are an input since opset 13, an attribute before.
  const auto axes = [&]() -> std::optional<std::vector<std::int64_t>> {
    if (given(1)) return inputs[1]->integers;
    if (node.attrs.has("axes")) return node.attrs.integers("axes", {});
    return std::nullopt;
  };
  if (const Arithmetic* arithmetic = arithmetic_named(node.op)) {
    if (inputs.size() == 2 && given(1)) return fold_arithmetic(*arithmetic, x, *inputs[1]);
    return nothing;
  }
  if (node.op == "Identity") return std::optional(x);
  if (node.op == "Cast") return fold_cast(node, x);
  if (node.op == "Gather" && given(1)) return fold_gather(node, x, *inputs[1]);
  if (node.op == "Slice") return fold_slice(node, inputs);
  if (node.op == "Concat" && std::all_of(inputs.begin(), inputs.end(), [](auto* input) { return input != nullptr; }))
    return fold_concat(node, inputs);
  if (node.op == "ConstantOfShape") return fold_constant_of_shape(node, x);
  if (node.op == "Range" && given(1) && given(2)) return fold_range(x, *inputs[1], *inputs[2]);
  if (node.op == "Where" && given(1) && given(2)) return fold_where(x, *inputs[1], *inputs[2]);
  if (node.op == "Expand" && given(1)) return fold_expand(x, inputs[1]->integers);
  if (node.op == "Reshape" && given(1)) {
    WEFT_TRY(Shape shape, resolve_reshape(x.type.shape, inputs[1]->integers, node.attrs.integer("allowzero", 0) != 0));
    return std::optional(reshaped(x, std::move(shape)));
  }
  if (node.op == "Unsqueeze") {
    WEFT_TRY(Shape shape, unsqueeze(x.type.shape, axes().value_or(std::vector<std::int64_t>())));
    return std::optional(reshaped(x, std::move(shape)));
  }
  if (node.op == "Squeeze") {
    WEFT_TRY(Shape shape, squeeze(x.type.shape, axes()));
    return std::optional(reshaped(x, std::move(shape)));
  }
  if (node.op == "ReduceProd" || node.op == "ReduceSum" || node.op == "ReduceMax" || node.op == "ReduceMin")
    return fold_reduce_all(node, inputs);
  return fold_unary(node.op, x);
}

}  // namespace weft
