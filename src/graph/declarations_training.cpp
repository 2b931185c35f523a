// What a training step adds to the network: gradient accumulation, norms, overflow checks, optimizer steps; and opaque
// operators, whose cost the user gives.
#include <fmt/format.h>

#include "graph/declaration.h"

namespace weft {
namespace {

// An optimizer step: parameter, gradient and states in; the updated ones out, in place. master=1: an fp32 copy of the
// parameter is kept and updated, and the parameter is rounded from it. scaled=1: gradients are multiplied by scale[]
// first (clipping, loss scaling); where it is 0 nothing changes. `scalars`: lr[], the learning rate, and step[], the
// number of the step from 1, which corrects the bias of moments that began at zero.
Declaration optimizer(const Attrs& attrs, std::initializer_list<std::string_view> states, std::string_view output,
                      std::string_view scalars, double cost) {
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
      .notation = fmt::format("{} {} -> {}", in, scalars, out),
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

// Several sums at once, one after the other: names="loss squares", counts=[1,3] adds x0, and then x1, x2 and x3.
Result<Declaration> add_scalars(const Attrs& attrs, Inputs inputs) {
  const auto terms = static_cast<std::int64_t>(inputs.size());
  const std::vector<std::int64_t> counts = attrs.integers("counts", {terms});
  std::string notation;
  for (std::int64_t i = 0; i < terms; ++i) notation += fmt::format("x{}[] ", i);
  notation += "->";
  std::string_view names = attrs.text("names", "y");
  std::int64_t left = terms;
  for (std::int64_t count : counts) {
    const std::size_t end = std::min(names.find(' '), names.size());
    if (count < 1 || count > left || end == 0)
      return error("add_scalars: counts must add up to the inputs and have a name each");
    left -= count;
    notation += fmt::format(" {}[]:f32", names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  if (left != 0 || !names.empty()) return error("add_scalars: counts must add up to the inputs and have a name each");
  return Declaration{.notation = notation, .sample = "", .linear = "*", .pointwise = 1};
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
    {OpKind::AccumulateLoss, "accumulate_loss", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       // Sums over micro-batches, each weighed by its share of the step's tokens; over devices it stays a partial sum.
       return Declaration{
           .notation = "acc[] loss[] weight[] -> out[]:f32",
           .sample = "",
           .linear = "acc+loss",
           .pointwise = 2,
           .aliases = "out:acc",
       };
     }},
    {OpKind::ScaleLoss, "scale_loss", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       return Declaration{.notation = "weight[] loss_scale[] -> dloss[]:f32", .sample = "", .pointwise = 1};
     }},
    {OpKind::Sgd, "sgd", "master:int scaled:int weight_decay:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> { return optimizer(attrs, {}, "p", "lr[]", 3); }},
    {OpKind::Momentum, "momentum", "master:int scaled:int momentum:num weight_decay:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> { return optimizer(attrs, {"m"}, "p", "lr[]", 5); }},
    {OpKind::Adam, "adam", "master:int scaled:int decoupled:int beta1:num beta2:num eps:num weight_decay:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       return optimizer(attrs, {"m", "v"}, "p", "lr[] step[]", 14);
     }},
    // LAMB in two: the update direction, then its application scaled by |p| / |update| over the whole tensor.
    {OpKind::LambUpdate, "lamb_update", "scaled:int beta1:num beta2:num eps:num weight_decay:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       return optimizer(attrs, {"m", "v"}, "u", "step[]", 14);
     }},
    {OpKind::LambApply, "lamb_apply", "master:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       const bool master = attrs.integer("master", 0) != 0;
       return Declaration{
           .notation = master ? "p[...] u[...] p2[] u2[] lr[] master[...] -> new_p[...] new_master[...]:f32"
                              : "p[...] u[...] p2[] u2[] lr[] -> new_p[...]",
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
    {OpKind::AddScalars, "add_scalars", "counts:ints names:str", add_scalars},
    {OpKind::ClipCoefficient, "clip_coefficient", "max_norm:num clip:int scaled:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       // min(1, max_norm / norm), norm = √squares; of a scaled loss min(1, max_norm · loss_scale / norm) / loss_scale,
       // or 0 where a gradient is not finite.
       std::string inputs = attrs.integer("clip", 1) ? "squares[] " : "";
       if (attrs.integer("scaled", 0)) inputs += "non_finite[] loss_scale[] ";
       return Declaration{.notation = inputs + "-> scale[]:f32", .sample = "", .pointwise = 4};
     }},
    {OpKind::Opaque, "opaque", "outputs:str flops:num", opaque},
};

}  // namespace

std::span<const OpEntry> training_operators() { return kOperators; }

}  // namespace weft
