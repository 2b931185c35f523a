// Operators that treat elements (or rows) independently.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/suggest.h"
#include "graph/declaration.h"

namespace weft {
namespace {

// What the backward of a function of one variable needs.
enum class Needs { Input, Output, Nothing, NoGradient };

struct UnaryFunction {
  std::string_view name;
  Needs needs;
  double cost;  // arithmetic per element; an estimate
};

constexpr UnaryFunction kUnary[] = {
    {"identity", Needs::Nothing, 0}, {"scale", Needs::Nothing, 1},     {"cast", Needs::Nothing, 1},
    {"neg", Needs::Nothing, 1},      {"relu", Needs::Output, 1},       {"tanh", Needs::Output, 6},
    {"sigmoid", Needs::Output, 4},   {"exp", Needs::Output, 4},        {"sqrt", Needs::Output, 4},
    {"rsqrt", Needs::Output, 4},     {"reciprocal", Needs::Output, 4}, {"softcap", Needs::Output, 8},
    {"gelu", Needs::Input, 10},      {"gelu_tanh", Needs::Input, 12},  {"silu", Needs::Input, 5},
    {"relu2", Needs::Input, 2},      {"square", Needs::Input, 1},      {"log", Needs::Input, 4},
    {"erf", Needs::Input, 8},        {"abs", Needs::Input, 1},         {"leaky_relu", Needs::Input, 2},
    {"softplus", Needs::Input, 6},   {"sin", Needs::Input, 8},         {"cos", Needs::Input, 8},
    {"hardswish", Needs::Input, 4},  {"hardsigmoid", Needs::Input, 3}, {"clamp", Needs::Input, 2},
    {"floor", Needs::NoGradient, 1}, {"ceil", Needs::NoGradient, 1},   {"round", Needs::NoGradient, 1},
    {"sign", Needs::NoGradient, 1},  {"not", Needs::NoGradient, 1},
};

constexpr std::string_view kComparisons[] = {"equal", "less", "less_equal", "greater", "greater_equal", "and", "or"};

Result<Declaration> unary(const Attrs& attrs, Inputs) {
  const std::string_view fn = attrs.text("fn", "");
  for (const UnaryFunction& function : kUnary) {
    if (function.name != fn) continue;
    Declaration declaration{.notation = "x[...] -> y[...]", .pointwise = function.cost};
    switch (function.needs) {
      case Needs::Input:
        declaration.gradients = {"grad: dy x -> dx"};
        break;
      case Needs::Output:
        declaration.gradients = {"grad: dy y -> dx"};
        break;
      case Needs::Nothing:
        declaration.gradients = {fn == "identity" ? "x = dy" : "grad: dy -> dx"};
        declaration.linear = "x";
        break;
      case Needs::NoGradient:
        break;
    }
    if (fn == "identity") declaration.aliases = "y:x";
    if (fn == "cast") {
      if (!attrs.has("to")) return error("unary: cast to what? to= missing");
      WEFT_TRY(const std::string type, output_type(attrs));
      declaration.notation += type;
    }
    return declaration;
  }
  std::vector<std::string> names;
  for (const UnaryFunction& function : kUnary) names.emplace_back(function.name);
  return error("unary: unknown function fn='{}'{}", fn, did_you_mean(fn, names));
}

// NumPy broadcasting: shapes align at the right; a dimension of 1 or a missing one is repeated.
// Returns the notation of each operand, "b,s,d" or "1,d", and last the output's.
Result<std::vector<std::string>> broadcast(std::string_view op, Inputs inputs) {
  std::size_t rank = 0;
  for (const TensorType& input : inputs) rank = std::max(rank, input.shape.size());
  const std::vector<std::string> names = axis_names_for_rank(rank);
  std::vector<std::vector<std::string>> operands(inputs.size() + 1);
  for (std::size_t d = 0; d < rank; ++d) {
    std::int64_t extent = 1;
    for (const TensorType& input : inputs) {
      if (d + input.shape.size() < rank) continue;
      const std::int64_t size = input.shape[d + input.shape.size() - rank];
      if (size != 1 && extent != 1 && size != extent) {
        std::vector<std::string> types;
        for (const TensorType& type : inputs) types.push_back(print(type));
        return error("{}: {} do not broadcast: {} against {}", op, fmt::join(types, " and "), extent, size);
      }
      extent = std::max(extent, size);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (d + inputs[i].shape.size() < rank) continue;
      const bool repeated = inputs[i].shape[d + inputs[i].shape.size() - rank] == 1 && extent != 1;
      operands[i].push_back(repeated ? "1" : names[d]);
    }
    operands.back().push_back(names[d]);
  }
  std::vector<std::string> texts;
  for (const auto& operand : operands) texts.push_back(fmt::format("{}", fmt::join(operand, ",")));
  return texts;
}

Result<Declaration> binary(const Attrs& attrs, Inputs inputs) {
  if (inputs.size() != 2) return error("binary: takes 2 inputs, not {}", inputs.size());
  WEFT_TRY(const std::vector<std::string> operands, broadcast("binary", inputs));
  const std::string_view fn = attrs.text("fn", "");
  WEFT_TRY(const std::string type, output_type(attrs));
  Declaration declaration{
      .notation = fmt::format("a[{}] b[{}] -> y[{}]{}", operands[0], operands[1], operands[2], type),
      .pointwise = 1,
  };
  // The gradient of a term of another type is cast to it.
  const DType made = attrs.has("to") ? *dtype_named(attrs.text("to", "")) : inputs[0].dtype;
  const auto passes = [&](std::size_t i, const char* as_is, const char* cast) {
    return std::string(!is_floating(inputs[i].dtype) || inputs[i].dtype == made ? as_is : cast);
  };
  if (fn == "add") {
    declaration.linear = "a+b";
    declaration.gradients = {passes(0, "a = dy", "grad_a: dy -> da"), passes(1, "b = dy", "grad_b: dy -> db")};
  } else if (fn == "sub") {
    declaration.linear = "a+b";
    declaration.gradients = {passes(0, "a = dy", "grad_a: dy -> da"), "grad_b: dy -> db"};
  } else if (fn == "mul") {
    declaration.linear = "a b";
    declaration.gradients = {"grad_a: dy b -> da", "grad_b: dy a -> db"};
  } else if (fn == "div") {
    declaration.linear = "a";
    declaration.gradients = {"grad_a: dy b -> da", "grad_b: dy y b -> db"};
  } else if (fn == "max" || fn == "min") {
    declaration.gradients = {"grad_a: dy a b -> da", "grad_b: dy a b -> db"};
  } else if (fn == "pow") {
    declaration.pointwise = 8;
    declaration.gradients = {"grad_a: dy a b -> da", "grad_b: dy a y -> db"};
  } else if (std::find(std::begin(kComparisons), std::end(kComparisons), fn) != std::end(kComparisons)) {
    declaration.notation += ":u8";
  } else {
    return error("binary: unknown function fn='{}'; write add, sub, mul, div, max, min, pow or a comparison", fn);
  }
  return declaration;
}

Result<Declaration> select(const Attrs&, Inputs inputs) {
  if (inputs.size() != 3) return error("select: takes condition, a and b, not {} inputs", inputs.size());
  WEFT_TRY(const std::vector<std::string> operands, broadcast("select", inputs));
  return Declaration{
      .notation = fmt::format("if[{}] a[{}] b[{}] -> y[{}]", operands[0], operands[1], operands[2], operands[3]),
      .linear = "a+b",
      .pointwise = 1,
      .gradients = {"grad_a: dy if -> da", "grad_b: dy if -> db"},
  };
}

Result<Declaration> bias(const Attrs& attrs, Inputs inputs) {
  if (inputs.size() != 2 || inputs[0].shape.empty()) return error("bias: takes x and bias[n]");
  const auto rank = static_cast<std::int64_t>(inputs[0].shape.size());
  const std::int64_t dim = attrs.integer("dim", rank - 1);
  if (dim < 0 || dim >= rank) return error("bias: dim={} of an input with {} dimensions", dim, rank);
  std::vector<std::string> names = axis_names_for_rank(inputs[0].shape.size());
  names[static_cast<std::size_t>(dim)] = "n";
  return Declaration{
      .notation = fmt::format("x[{0}] bias[n] -> y[{0}]", fmt::join(names, ",")),
      .linear = "x+bias",
      .pointwise = 1,
      .gradients = {"x = dy", "grad_bias: dy -> dbias"},
  };
}

const OpEntry kOperators[] = {
    // value: the factor of scale, the limit of softcap, the slope of leaky_relu; low, high: the bounds of clamp.
    {OpKind::Unary, "unary", "fn:str value:num to:str low:num high:num", unary},
    {OpKind::Binary, "binary", "fn:str to:str", binary},
    {OpKind::Select, "select", "", select},
    {OpKind::Glu, "glu", "fn:str packed:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       const std::string_view fn = attrs.text("fn", "silu");
       if (fn != "silu" && fn != "gelu" && fn != "gelu_tanh" && fn != "sigmoid")
         return error("glu: fn '{}': write silu, gelu, gelu_tanh or sigmoid", fn);
       if (attrs.integer("packed", 0))
         return Declaration{
             // Gate and value side by side in one tensor, as one fused projection leaves them.
             .notation = "x[...,a.f] -> y[...,f]", .sizes = {{"a", 2}}, .whole = "a", .pointwise = 6,
             .gradients = {"grad: dy x -> dx"},
         };
       return Declaration{
           .notation = "a[...] b[...] -> y[...]",
           .pointwise = 6,
           .gradients = {"grad: dy a b -> da db"},
       };
     }},
    {OpKind::Bias, "bias", "dim:int", bias},
    {OpKind::Dropout, "dropout", "p:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       const double p = attrs.number("p", 0.5);
       if (!(p >= 0 && p < 1)) return error("dropout: p={} must be in [0, 1)", p);
       return Declaration{
           // The mask is a hash of the global index, so shards draw what the single device would.
           .notation = "x[...] -> y[...] mask[...]:u8",
           .pointwise = 2,
           .gradients = {"grad: dy mask -> dx"},
       };
     }},
    {OpKind::Rotary, "rotary", "head_dim:int rotary_dim:int base:num zigzag:int",
     [](const Attrs& attrs, Inputs inputs) -> Result<Declaration> {
       const std::int64_t head_dim = attrs.integer("head_dim", 0), rotary_dim = attrs.integer("rotary_dim", head_dim);
       if (head_dim <= 0 || rotary_dim <= 0 || rotary_dim % 2 != 0 || rotary_dim > head_dim)
         return error("rotary: rotary_dim={} must be even, positive and at most head_dim={}", rotary_dim, head_dim);
       if (const std::int64_t parts = attrs.integer("zigzag", 1); parts != 1) {
         const std::int64_t tokens = inputs.empty() || inputs[0].shape.size() < 2 ? 0 : inputs[0].shape[1];
         if (parts < 1 || parts > tokens || tokens % (2 * parts) != 0)
           return error("rotary: zigzag={} needs 2·{} chunks of tokens; there are {} tokens", parts, parts, tokens);
       }
       return Declaration{
           // Rotates pairs (i, i + rotary_dim/2) of each head by the position's angle; the position is that of s
           // (token_order.h).
           .notation = "x[b,s,h.d] -> y[b,s,h.d]",
           .sizes = {{"d", head_dim}},
           .whole = "d",
           .linear = "x",
           .pointwise = 3,
           .gradients = {"grad: dy -> dx"},
       };
     }},
};

}  // namespace

std::span<const OpEntry> pointwise_operators() { return kOperators; }

}  // namespace weft
