// What a training step adds to the network: gradient accumulation, norms, overflow checks, optimizer steps; and opaque
// operators, whose cost the user gives.
#include <fmt/format.h>

#include "graph/declaration.h"

namespace weft {
namespace {

// An optimizer step: parameter, gradient and states in; the updated ones out, in place. master=1: an fp32 copy of the
// parameter is kept and updated, and the parameter is rounded from it. scaled=1: gradients are multiplied by scale[]
// first (clipping, loss scaling; 0 skips the step).
Declaration optimizer(const Attrs& attrs, std::initializer_list<std::string_view> states, std::string_view output,
                      double cost) {
  std::string in = "p[...] g[...]", out = fmt::format("new_{}[...]", output), aliases = output == "p" ? "new_p:p" : "";
  const auto add = [&](std::string_view state) {
    in += fmt::format(" {}[...]", state);
    out += fmt::format(" new_{}[...]:f32", state);
    aliases += fmt::format(" new_{0}:{0}", state);
  };
  if (attrs.integer("master", 0)) add("master");
  for (std::string_view state : states) add(state);
  if (attrs.integer("scaled", 0)) in += " scale[]";
  return {
      .notation = in + " -> " + out,
      .sample = "",
      .pointwise = cost,
      .aliases = aliases,
      .parameter_shaped = true,
  };
}

// One TensorType per item of "f32[1,2] i64[3]", as notation of whole axes.
Result<Declaration> opaque(const Attrs& attrs, Inputs inputs) {
  Declaration declaration{.notation = "", .sample = "", .pointwise = 1};
  int axis = 0;
  const auto operand = [&](const std::string& name, const Shape& shape) {
    std::vector<std::string> dims;
    for (std::int64_t extent : shape) {
      dims.push_back(fmt::format("u{}", axis++));
      declaration.sizes.emplace_back(dims.back(), extent);
      declaration.whole += dims.back() + " ";
    }
    return fmt::format("{}[{}]", name, fmt::join(dims, ","));
  };
  for (std::size_t i = 0; i < inputs.size(); ++i)
    declaration.notation += operand(fmt::format("x{}", i), inputs[i].shape) + " ";
  declaration.notation += "->";
  std::string_view types = attrs.text("outputs", "");
  int outputs = 0;
  while (!types.empty()) {
    const std::size_t end = std::min(types.find(' '), types.size());
    const std::string_view item = types.substr(0, end);
    types.remove_prefix(std::min(end + 1, types.size()));
    if (item.empty()) continue;
    WEFT_TRY(const TensorType type, parse_tensor_type(item));
    declaration.notation +=
        fmt::format(" {}:{}", operand(fmt::format("y{}", outputs++), type.shape), name_of(type.dtype));
  }
  if (outputs == 0) return error("opaque: outputs=\"f32[1,2] …\" missing");
  return declaration;
}

const OpEntry kOperators[] = {
    {OpKind::Accumulate, "accumulate", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       return Declaration{
           .notation = "acc[...] g[...] -> out[...]",
           .sample = "",
           .linear = "acc+g",
           .pointwise = 1,
           .aliases = "out:acc",
           .parameter_shaped = true,
       };
     }},
    {OpKind::Sgd, "sgd", "master:int scaled:int weight_decay:num lr:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> { return optimizer(attrs, {}, "p", 3); }},
    {OpKind::Momentum, "momentum", "master:int scaled:int momentum:num weight_decay:num lr:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> { return optimizer(attrs, {"m"}, "p", 5); }},
    {OpKind::Adam, "adam", "master:int scaled:int decoupled:int beta1:num beta2:num eps:num weight_decay:num lr:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       return optimizer(attrs, {"m", "v"}, "p", 14);
     }},
    // LAMB in two: the update direction, then its application scaled by |p| / |update| over the whole tensor.
    {OpKind::LambUpdate, "lamb_update", "scaled:int beta1:num beta2:num eps:num weight_decay:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       return optimizer(attrs, {"m", "v"}, "u", 14);
     }},
    {OpKind::LambApply, "lamb_apply", "master:int lr:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       const bool master = attrs.integer("master", 0) != 0;
       return Declaration{
           .notation = master ? "p[...] u[...] p2[] u2[] master[...] -> new_p[...] new_master[...]:f32"
                              : "p[...] u[...] p2[] u2[] -> new_p[...]",
           .sample = "",
           .pointwise = 2,
           .aliases = master ? "new_p:p new_master:master" : "new_p:p",
           .parameter_shaped = true,
       };
     }},
    {OpKind::SumSquares, "sum_squares", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       return Declaration{.notation = "g[...] -> y[]:f32", .sample = "", .pointwise = 2, .parameter_shaped = true};
     }},
    {OpKind::NonFinite, "non_finite", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       // The number of NaN and infinite elements: the fp16 overflow check.
       return Declaration{.notation = "g[...] -> y[]:f32", .sample = "", .pointwise = 1, .parameter_shaped = true};
     }},
    {OpKind::AddScalars, "add_scalars", "",
     [](const Attrs&, Inputs inputs) -> Result<Declaration> {
       std::string notation;
       for (std::size_t i = 0; i < inputs.size(); ++i) notation += fmt::format("x{}[] ", i);
       return Declaration{.notation = notation + "-> y[]:f32", .sample = "", .linear = "*", .pointwise = 1};
     }},
    {OpKind::ClipCoefficient, "clip_coefficient", "max_norm:num overflow:int clip:int loss_scale:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       // min(1, max_norm / √squares) / loss_scale, or 0 where a gradient overflowed.
       std::string inputs = attrs.integer("clip", 1) ? "squares[] " : "";
       if (attrs.integer("overflow", 0)) inputs += "bad[] ";
       return Declaration{.notation = inputs + "-> scale[]:f32", .sample = "", .pointwise = 4};
     }},
    {OpKind::Opaque, "opaque", "outputs:str flops:num", opaque},
};

}  // namespace

std::span<const OpEntry> training_operators() { return kOperators; }

}  // namespace weft
