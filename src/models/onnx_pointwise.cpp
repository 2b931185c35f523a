// Functions of one element and broadcast arithmetic.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/onnx_operators.h"
#include "models/onnx_shapes.h"

namespace weft {
namespace {

// ONNX operators that are one of Weft's unary functions by another name.
constexpr std::pair<std::string_view, std::string_view> kFunctions[] = {
    {"Relu", "relu"},         {"Sigmoid", "sigmoid"},
    {"Tanh", "tanh"},         {"Erf", "erf"},
    {"Exp", "exp"},           {"Log", "log"},
    {"Sqrt", "sqrt"},         {"Abs", "abs"},
    {"Neg", "neg"},           {"Reciprocal", "reciprocal"},
    {"Softplus", "softplus"}, {"HardSwish", "hardswish"},
    {"Sin", "sin"},           {"Cos", "cos"},
    {"Floor", "floor"},       {"Ceil", "ceil"},
    {"Round", "round"},       {"Sign", "sign"},
    {"Not", "not"},           {"HardSigmoid", "hardsigmoid"},
    {"Swish", "silu"},
};
constexpr std::pair<std::string_view, std::string_view> kArithmetic[] = {
    {"Add", "add"},         {"Sub", "sub"},
    {"Mul", "mul"},         {"Div", "div"},
    {"Min", "min"},         {"Max", "max"},
    {"Pow", "pow"},         {"Equal", "equal"},
    {"Less", "less"},       {"LessOrEqual", "less_equal"},
    {"Greater", "greater"}, {"GreaterOrEqual", "greater_equal"},
    {"And", "and"},         {"Or", "or"},
    {"Sum", "add"},
};

template <class Table>
std::string name_in(const Table& table, std::string_view op) {
  for (const auto& [onnx, weft] : table)
    if (onnx == op) return std::string(weft);
  return "";
}

Status define_unary(OnnxEmitter& e, std::size_t input, Attrs attrs) {
  WEFT_TRY(const TensorId x, e.tensor(input));
  WEFT_TRY(const TensorId y, e.op1(OpKind::Unary, {x}, std::move(attrs)));
  e.define(0, y);
  return Ok{};
}

Status import_function(OnnxEmitter& e) { return define_unary(e, 0, {{"fn", name_in(kFunctions, e.node().op)}}); }

Status import_leaky_relu(OnnxEmitter& e) {
  return define_unary(e, 0, {{"fn", "leaky_relu"}, {"value", e.attrs().number("alpha", 0.01)}});
}

Status import_gelu(OnnxEmitter& e) {
  return define_unary(e, 0, {{"fn", e.attrs().text("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu"}});
}

Status import_clip(OnnxEmitter& e) {
  Attrs attrs{{"fn", "clamp"}};
  // The bounds are inputs since opset 11, attributes before.
  for (const auto& [input, name, bound] : {std::tuple(1, "min", "low"), std::tuple(2, "max", "high")}) {
    const auto i = static_cast<std::size_t>(input);
    if (e.given(i)) {
      const auto value = e.scalar(i);
      if (!value) return error("its {} ('{}') must be a constant", name, printable(e.node().inputs[i]));
      attrs.set(bound, *value);
    } else if (e.attrs().has(name)) {
      attrs.set(bound, e.attrs().number(name, 0));
    }
  }
  return define_unary(e, 0, std::move(attrs));
}

Status import_cast(OnnxEmitter& e) {
  const auto dtype = onnx_dtype(e.attrs().integer("to", 0));
  if (!dtype) return error("casts to element type {}, which is not supported", e.attrs().integer("to", 0));
  WEFT_TRY(const OnnxValue* x, e.value(0));
  if (x->type.dtype == *dtype) return e.alias(0, 0);
  return define_unary(e, 0, {{"fn", "cast"}, {"to", std::string(name_of(*dtype))}});
}

Status import_dropout(OnnxEmitter& e) {
  // The ratio is an input since opset 12, and dropout happens in training mode only.
  double ratio = e.attrs().number("ratio", 0.5);
  if (e.given(1)) {
    const auto value = e.scalar(1);
    if (!value) return error("its ratio ('{}') must be a constant", printable(e.node().inputs[1]));
    ratio = *value;
  }
  const bool training = e.opset() < 12 || e.scalar(2).value_or(0) != 0;
  if (ratio == 0 || !training) return e.alias(0, 0);
  WEFT_TRY(const TensorId x, e.tensor(0));
  const TensorId inputs[] = {x};
  WEFT_TRY(const std::vector<TensorId> outputs, e.op(OpKind::Dropout, inputs, {{"p", ratio}}));
  e.define(0, outputs[0]);
  e.define(1, outputs[1]);
  return Ok{};
}

// A vector added along the last dimension of a tensor: the bias of a linear layer.
bool is_bias(const OnnxValue& bias, const OnnxValue& x) {
  return bias.parameter && bias.type.shape.size() == 1 && x.type.shape.size() >= 2 && !x.parameter &&
         x.type.shape.back() == bias.type.shape[0];
}

// Products with and powers of known numbers are functions of one variable; `done` unless the node is none of
// those.
Result<bool> import_with_scalar(OnnxEmitter& e) {
  const std::string& op = e.node().op;
  if (op != "Mul" && op != "Div" && op != "Pow") return false;
  for (const std::size_t at : {1, 0}) {
    const auto number = e.scalar(at);
    if (!number || (at == 0 && op != "Mul")) continue;
    WEFT_TRY(const OnnxValue* x, e.value(1 - at));
    WEFT_TRY(const OnnxValue* factor, e.value(at));
    if (factor->type.shape.size() > x->type.shape.size() || !is_floating(x->type.dtype)) continue;
    Attrs attrs;
    if (op == "Pow")
      attrs = {{"fn", *number == 2      ? "square"
                      : *number == 0.5  ? "sqrt"
                      : *number == -1   ? "reciprocal"
                      : *number == -0.5 ? "rsqrt"
                                        : ""}};
    else if (op == "Mul" || *number != 0)
      attrs = {{"fn", "scale"}, {"value", op == "Mul" ? *number : 1 / *number}};
    if (attrs.text("fn", "").empty()) continue;
    WEFT_TRY_OK(define_unary(e, 1 - at, std::move(attrs)));
    return true;
  }
  return false;
}

Status import_arithmetic(OnnxEmitter& e) {
  const std::string fn = name_in(kArithmetic, e.node().op);
  if (e.node().inputs.size() == 1) return e.alias(0, 0);
  if (e.node().inputs.size() == 2) {
    WEFT_TRY(const bool done, import_with_scalar(e));
    if (done) return Ok{};
    WEFT_TRY(const OnnxValue* a, e.value(0));
    WEFT_TRY(const OnnxValue* b, e.value(1));
    if (fn == "add" && (is_bias(*b, *a) || is_bias(*a, *b))) {
      const std::size_t bias = is_bias(*b, *a) ? 1 : 0;
      WEFT_TRY(const TensorId x, e.tensor(1 - bias));
      WEFT_TRY(const TensorId vector, e.tensor(bias));
      WEFT_TRY(const TensorId y, e.op1(OpKind::Bias, {x, vector}));
      e.define(0, y);
      return Ok{};
    }
  }
  WEFT_TRY(TensorId total, e.tensor(0));
  for (std::size_t i = 1; i < e.node().inputs.size(); ++i) {
    WEFT_TRY(const TensorId next, e.tensor(i));
    WEFT_TRY(total, e.op1(OpKind::Binary, {total, next}, {{"fn", fn}}));
  }
  e.define(0, total);
  return Ok{};
}

Status import_where(OnnxEmitter& e) {
  WEFT_TRY(const TensorId condition, e.tensor(0));
  WEFT_TRY(const TensorId a, e.tensor(1));
  WEFT_TRY(const TensorId b, e.tensor(2));
  WEFT_TRY(const TensorId y, e.op1(OpKind::Select, {condition, a, b}));
  e.define(0, y);
  return Ok{};
}

std::vector<OnnxOperator> make_table() {
  std::vector<OnnxOperator> table = {
      {"LeakyRelu", import_leaky_relu}, {"Gelu", import_gelu},   {"Clip", import_clip}, {"Cast", import_cast},
      {"Dropout", import_dropout},      {"Where", import_where},
  };
  for (const auto& [op, fn] : kFunctions) table.push_back({op, import_function});
  for (const auto& [op, fn] : kArithmetic) table.push_back({op, import_arithmetic});
  return table;
}

}  // namespace

std::span<const OnnxOperator> onnx_pointwise() {
  static const std::vector<OnnxOperator> kTable = make_table();
  return kTable;
}

}  // namespace weft
