// Conv, Gemm, MatMul and Einsum.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "models/onnx_operators.h"
#include "models/onnx_shapes.h"

namespace weft {
namespace {

Status import_conv(OnnxEmitter& e) {
  WEFT_TRY(const Shape shape, e.shape(0));
  WEFT_TRY(const Shape weight, e.shape(1));
  if (shape.size() != weight.size() || shape.size() < 3 || shape.size() > 4)
    return error("convolves [{}] with weights [{}]; Weft has 1- and 2-dimensional convolutions", fmt::join(shape, ","),
                 fmt::join(weight, ","));
  const Shape kernel(weight.begin() + 2, weight.end());
  if (e.attrs().integers("kernel_shape", kernel) != kernel)
    return error("kernel_shape [{}] differs from the weights' [{}]",
                 fmt::join(e.attrs().integers("kernel_shape", {}), ","), fmt::join(kernel, ","));
  WEFT_TRY(Attrs attrs, window_attrs(e.attrs(), shape, kernel));
  attrs.set("groups", e.attrs().integer("group", 1));
  WEFT_TRY(const TensorId x, e.tensor(0));
  WEFT_TRY(const TensorId w, e.tensor(1));
  WEFT_TRY(TensorId y, e.op1(kernel.size() == 1 ? OpKind::Conv1d : OpKind::Conv2d, {x, w}, std::move(attrs)));
  if (e.given(2)) {
    WEFT_TRY(const TensorId bias, e.tensor(2));
    WEFT_TRY(y, e.op1(OpKind::Bias, {y, bias}, {{"dim", std::int64_t{1}}}, "bias"));
  }
  e.define(0, y);
  return Ok{};
}

Result<TensorId> scaled(OnnxEmitter& e, TensorId x, double factor, std::string_view part) {
  if (factor == 1) return x;
  return e.op1(OpKind::Unary, {x}, {{"fn", "scale"}, {"value", factor}}, part);
}

Status import_gemm(OnnxEmitter& e) {
  WEFT_TRY(const Shape a_shape, e.shape(0));
  WEFT_TRY(const Shape b_shape, e.shape(1));
  if (a_shape.size() != 2 || b_shape.size() != 2)
    return error("multiplies [{}] and [{}]; both must be matrices", fmt::join(a_shape, ","), fmt::join(b_shape, ","));
  WEFT_TRY(TensorId a, e.tensor(0));
  WEFT_TRY(const TensorId b, e.tensor(1));
  if (e.attrs().integer("transA", 0)) {
    WEFT_TRY(a, e.transpose(a, {1, 0}, "transposed"));
  }
  const std::int64_t transposed = e.attrs().integer("transB", 0) ? 1 : 0;
  WEFT_TRY(TensorId y, e.op1(OpKind::Linear, {a, b}, transposed ? Attrs{{"transposed", transposed}} : Attrs{}));
  WEFT_TRY(y, scaled(e, y, e.attrs().number("alpha", 1), "alpha"));
  const double beta = e.attrs().number("beta", 1);
  if (e.given(2) && beta != 0) {
    WEFT_TRY(TensorId c, e.tensor(2));
    WEFT_TRY(c, scaled(e, c, beta, "beta"));
    const Shape c_shape = e.type(c).shape;
    if (c_shape.size() == 1 && c_shape[0] == e.type(y).shape[1]) {
      WEFT_TRY(y, e.op1(OpKind::Bias, {y, c}, {{"dim", std::int64_t{1}}}, "bias"));
    } else {
      WEFT_TRY(y, e.op1(OpKind::Binary, {y, c}, {{"fn", "add"}}, "bias"));
    }
  }
  e.define(0, y);
  return Ok{};
}

// Names for the batch dimensions of a product, outermost first.
std::string batch_axis(std::size_t i) { return i == 0 ? "b" : i == 1 ? "s" : fmt::format("i{}", i); }

// "a[b,s,m,k] b[s,k,n] -> y[b,s,m,n]": NumPy's matmul, batch dimensions broadcast.
Result<std::string> matmul_notation(const Shape& a, const Shape& b) {
  if (a.empty() || b.empty()) return error("multiplies a scalar; use Mul");
  const std::size_t a_matrix = std::min<std::size_t>(a.size(), 2), b_matrix = std::min<std::size_t>(b.size(), 2);
  const Shape a_batch(a.begin(), a.end() - static_cast<std::ptrdiff_t>(a_matrix));
  const Shape b_batch(b.begin(), b.end() - static_cast<std::ptrdiff_t>(b_matrix));
  WEFT_TRY(const Shape batch, broadcast_shapes(a_batch, b_batch));
  const auto indices = [&](const Shape& own, std::initializer_list<std::string_view> matrix) {
    std::vector<std::string> dims;
    for (std::size_t d = 0; d < own.size(); ++d) {
      const std::size_t i = batch.size() - own.size() + d;
      dims.push_back(own[d] == 1 && batch[i] != 1 ? "1" : batch_axis(i));
    }
    for (const std::string_view axis : matrix)
      if (!axis.empty()) dims.emplace_back(axis);
    return fmt::format("{}", fmt::join(dims, ","));
  };
  const std::string_view m = a_matrix == 2 ? "m" : "", n = b_matrix == 2 ? "n" : "";
  return fmt::format("a[{}] b[{}] -> y[{}]", indices(a_batch, {m, "k"}), indices(b_batch, {"k", n}),
                     indices(batch, {m, n}));
}

Status import_matmul(OnnxEmitter& e) {
  WEFT_TRY(const OnnxValue* a_value, e.value(0));
  WEFT_TRY(const OnnxValue* b_value, e.value(1));
  const bool transposed = !b_value->transpose_of.empty();
  if ((b_value->parameter || transposed) && b_value->type.shape.size() == 2 && !a_value->type.shape.empty()) {
    WEFT_TRY(const TensorId x, e.tensor(0));
    WEFT_TRY(const TensorId w, transposed ? e.tensor_of(b_value->transpose_of) : e.tensor(1));
    WEFT_TRY(const TensorId y,
             e.op1(OpKind::Linear, {x, w}, transposed ? Attrs{{"transposed", std::int64_t{1}}} : Attrs{}));
    e.define(0, y);
    return Ok{};
  }
  const Shape a_shape = a_value->type.shape, b_shape = b_value->type.shape;
  WEFT_TRY(const TensorId a, e.tensor(0));
  WEFT_TRY(const TensorId b, e.tensor(1));
  const bool plain = a_shape.size() == b_shape.size() && a_shape.size() >= 2 &&
                     std::equal(a_shape.begin(), a_shape.end() - 2, b_shape.begin());
  Attrs attrs;
  if (!plain) {
    WEFT_TRY(const std::string notation, matmul_notation(a_shape, b_shape));
    attrs.set("notation", notation);
  }
  WEFT_TRY(const TensorId y, e.op1(OpKind::Matmul, {a, b}, std::move(attrs)));
  e.define(0, y);
  return Ok{};
}

// One operand of an equation, letter by letter; the dimensions of "..." are the digits '0', '1', … counted
// from the right.
Result<std::string> einsum_letters(std::string_view term, std::size_t rank) {
  std::string letters;
  const std::size_t dots = term.find("...");
  const std::size_t named = dots == std::string_view::npos ? term.size() : term.size() - 3;
  if (named > rank || (dots == std::string_view::npos && named != rank) || rank - named > 9)
    return error("equation term '{}' does not fit {} dimensions", printable(term), rank);
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (i == dots) {
      for (std::size_t d = rank - named; d-- > 0;) letters += static_cast<char>('0' + d);
      i += 2;
      continue;
    }
    if (!std::isalpha(static_cast<unsigned char>(term[i])))
      return error("equation term '{}' has a '{}'", printable(term), term[i]);
    if (letters.find(term[i]) != std::string::npos)
      return error("equation term '{}' repeats {}; diagonals are not supported", printable(term), term[i]);
    letters += term[i];
  }
  return letters;
}

Status import_einsum(OnnxEmitter& e) {
  std::string equation(e.attrs().text("equation", ""));
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  const std::size_t comma = equation.find(','), arrow = equation.find("->");
  if (e.node().inputs.size() != 2 || comma == std::string::npos || arrow == std::string::npos || comma > arrow ||
      equation.find(',', comma + 1) != std::string::npos)
    return error("equation '{}': Weft imports products of two operands with an explicit result", printable(equation));
  WEFT_TRY(const Shape a_shape, e.shape(0));
  WEFT_TRY(const Shape b_shape, e.shape(1));
  WEFT_TRY(const std::string a, einsum_letters(equation.substr(0, comma), a_shape.size()));
  WEFT_TRY(const std::string b, einsum_letters(equation.substr(comma + 1, arrow - comma - 1), b_shape.size()));
  const std::string y_term = equation.substr(arrow + 2);
  std::size_t hidden = 0;  // dimensions that "..." stands for
  for (const char letter : a + b)
    if (std::isdigit(static_cast<unsigned char>(letter)))
      hidden = std::max<std::size_t>(hidden, static_cast<std::size_t>(letter - '0') + 1);
  const bool dots = y_term.find("...") != std::string::npos;
  WEFT_TRY(const std::string y, einsum_letters(y_term, dots ? y_term.size() - 3 + hidden : y_term.size()));
  for (const char letter : y)
    if ((a + b).find(letter) == std::string::npos)
      return error("equation '{}': nothing gives the size of {}", printable(equation), letter);
  // The result's first axis is the sample axis b.
  const auto operand = [&](const std::string& letters) {
    std::vector<std::string> axes;
    for (const char letter : letters)
      axes.push_back(!y.empty() && letter == y[0]                       ? "b"
                     : std::isdigit(static_cast<unsigned char>(letter)) ? fmt::format("i{}", letter)
                     : letter == 'b'                                    ? "b2"
                                                                        : std::string(1, letter));
    return fmt::format("{}", fmt::join(axes, ","));
  };
  WEFT_TRY(const TensorId left, e.tensor(0));
  WEFT_TRY(const TensorId right, e.tensor(1));
  const std::string notation = fmt::format("a[{}] b[{}] -> y[{}]", operand(a), operand(b), operand(y));
  WEFT_TRY(const TensorId product, e.op1(OpKind::Matmul, {left, right}, {{"notation", notation}}));
  e.define(0, product);
  return Ok{};
}

}  // namespace

Result<Attrs> window_attrs(const Attrs& attrs, const Shape& x, const Shape& kernel) {
  const std::size_t rank = kernel.size();
  const Shape ones(rank, 1), stride = attrs.integers("strides", ones), dilation = attrs.integers("dilations", ones);
  Shape pad = attrs.integers("pads", Shape(2 * rank, 0));
  if (stride.size() != rank || dilation.size() != rank || pad.size() != 2 * rank)
    return error("has {} strides, {} dilations and {} pads for a window of {} dimensions", stride.size(),
                 dilation.size(), pad.size(), rank);
  constexpr std::int64_t kLimit = 1LL << 32;
  const auto check = [&](const Shape& sizes, std::int64_t least, std::string_view what) -> Status {
    for (const std::int64_t size : sizes)
      if (size < least || size > kLimit)
        return error("{} [{}] must be at least {} and below 2^32", what, fmt::join(sizes, ","), least);
    return Ok{};
  };
  WEFT_TRY_OK(check(stride, 1, "strides"));
  WEFT_TRY_OK(check(dilation, 1, "dilations"));
  WEFT_TRY_OK(check(kernel, 1, "the kernel"));
  WEFT_TRY_OK(check(pad, 0, "pads"));
  const std::string_view automatic = attrs.text("auto_pad", "NOTSET");
  if (automatic == "VALID") pad.assign(2 * rank, 0);
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (std::size_t d = 0; d < rank; ++d) {
      // As many outputs as strides fit the input; an odd pad goes to the end (upper) or the beginning
      // (lower).
      const std::int64_t extent = x[x.size() - rank + d], outputs = (extent - 1) / stride[d] + 1;
      __int128 total = static_cast<__int128>(outputs - 1) * stride[d] +
                       static_cast<__int128>(kernel[d] - 1) * dilation[d] + 1 - extent;
      total = std::clamp<__int128>(total, 0, kLimit);
      const auto small = static_cast<std::int64_t>(total / 2), large = static_cast<std::int64_t>(total - total / 2);
      pad[d] = automatic == "SAME_UPPER" ? small : large;
      pad[rank + d] = automatic == "SAME_UPPER" ? large : small;
    }
  } else if (automatic != "NOTSET" && automatic != "VALID") {
    return error("auto_pad '{}' is unknown", printable(automatic));
  }
  return Attrs{{"stride", stride}, {"dilation", dilation}, {"pad", pad}};
}

std::span<const OnnxOperator> onnx_contractions() {
  static constexpr OnnxOperator kOperators[] = {
      {"Conv", import_conv}, {"Gemm", import_gemm}, {"MatMul", import_matmul}, {"Einsum", import_einsum}};
  return kOperators;
}

}  // namespace weft
