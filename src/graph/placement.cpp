#include "graph/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "graph/operators.h"

namespace weft {

std::string print(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::Replicated:
      return "R";
    case Placement::Kind::Local:
      return "L";
    case Placement::Kind::Partial:
      return placement.reducer == Reducer::Sum ? "P" : fmt::format("P({})", name_of(placement.reducer));
    case Placement::Kind::Split:
      break;
  }
  std::string text = fmt::format("S({}", placement.dim);
  if (placement.outer > 1) text += fmt::format("/{}", placement.outer);
  if (placement.halo_low || placement.halo_high)
    text += fmt::format(",-{}+{}", placement.halo_low, placement.halo_high);
  return text + ")";
}

bool splittable(const Signature& signature, int axis) {
  const Axis& described = signature.axes[static_cast<std::size_t>(axis)];
  if (described.kind == AxisKind::Whole || described.size < 2) return false;
  for (int i = 0; i < signature.operand_count(); ++i)
    if (signature.operand(i).axes().contains(axis)) return true;
  return false;
}

std::optional<Placement> operand_split(const Signature& signature, const Operand& operand, int axis) {
  for (std::size_t d = 0; d < operand.dims.size(); ++d) {
    std::int64_t outer = 1;
    for (int factor : operand.dims[d].factors) {
      if (factor == axis) {
        Placement placement = Placement::split(static_cast<int>(d), outer);
        const Window& window = operand.dims[d].window;
        if (operand.dims[d].windowed()) {
          // A device owns stride · its share; a window reaches pad_low before it and the rest of the kernel behind.
          const std::int64_t kernel = signature.axes[static_cast<std::size_t>(window.kernel)].size;
          placement.halo_low = window.pad_low;
          placement.halo_high =
              std::max<std::int64_t>(0, window.dilation * (kernel - 1) - window.pad_low - (window.stride - 1));
        }
        return placement;
      }
      outer *= signature.axes[static_cast<std::size_t>(factor)].size;
    }
  }
  return std::nullopt;
}

namespace {

std::string product_of(const Signature& signature, const Operand& operand) {
  std::string text;
  for (const DimIndex& dim : operand.dims)
    for (int factor : dim.factors)
      text += (text.empty() ? "" : "·") + signature.axes[static_cast<std::size_t>(factor)].name;
  return text.empty() ? "1" : text;
}

}  // namespace

LayoutRule split_rule(const Signature& signature, int axis) {
  WEFT_CHECK(splittable(signature, axis), "axis {} of {}", signature.axes[static_cast<std::size_t>(axis)].name,
             name_of(signature.kind));
  LayoutRule rule{.axis = axis, .inputs = {}, .outputs = {}};
  Placement local;
  local.kind = Placement::Kind::Local;
  for (const Operand& input : signature.inputs) {
    const auto split = operand_split(signature, input, axis);
    rule.inputs.push_back(split ? *split : input.local.contains(axis) ? local : Placement::replicated());
  }
  for (const Operand& output : signature.outputs) {
    const auto split = operand_split(signature, output, axis);
    rule.outputs.push_back(split ? *split : output.local.contains(axis) ? local : Placement::partial(output.reducer));
  }
  return rule;
}

std::vector<LayoutRule> layout_rules(const Signature& signature) {
  std::vector<LayoutRule> rules;
  rules.push_back(
      {-1, std::vector<Placement>(signature.inputs.size()), std::vector<Placement>(signature.outputs.size())});
  for (int axis = 0; axis < static_cast<int>(signature.axes.size()); ++axis)
    if (splittable(signature, axis)) rules.push_back(split_rule(signature, axis));
  for (std::uint64_t mask : signature.linear_in) {
    if (mask == 0) continue;
    LayoutRule rule{-1, {}, std::vector<Placement>(signature.outputs.size(), Placement::partial())};
    for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
      const bool partial = mask == ~std::uint64_t{0} || (i < 64 && (mask >> i & 1u) != 0);
      rule.inputs.push_back(partial ? Placement::partial() : Placement::replicated());
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::optional<LayoutRule> rule_for(const Signature& signature, std::span<const Placement> inputs) {
  for (LayoutRule& rule : layout_rules(signature)) {
    const bool same =
        std::equal(inputs.begin(), inputs.end(), rule.inputs.begin(), rule.inputs.end(), [](Placement a, Placement b) {
          a.halo_low = a.halo_high = b.halo_low = b.halo_high = 0;
          return a == b;
        });
    if (same) return std::move(rule);
  }
  return std::nullopt;
}

double SplitVolume::elements_sent(int n) const {
  double total = 0;
  for (const VolumeTerm& term : all_reduced) total += 2.0 * (n - 1) / n * static_cast<double>(term.elements);
  for (const VolumeTerm& term : halo) total += static_cast<double>(term.elements);
  return total;
}

SplitVolume split_volume(const Signature& forward, int axis) {
  SplitVolume volume;
  const auto add_partials = [&](const Signature& signature) {
    if (!splittable(signature, axis)) return;
    const LayoutRule rule = split_rule(signature, axis);
    for (std::size_t i = 0; i < rule.outputs.size(); ++i)
      if (rule.outputs[i].kind == Placement::Kind::Partial)
        volume.all_reduced.push_back(
            {signature.outputs[i].name, product_of(signature, signature.outputs[i]), signature.outputs[i].elements()});
    const auto add_halo = [&](const Operand& operand, const Placement& placement) {
      const std::int64_t rows = placement.halo_low + placement.halo_high;
      if (placement.kind != Placement::Kind::Split || rows == 0) return;
      const std::int64_t row = operand.elements() / operand.dims[static_cast<std::size_t>(placement.dim)].size;
      volume.halo.push_back({operand.name, fmt::format("{}·{}", rows, row), rows * row});
    };
    for (std::size_t i = 0; i < rule.inputs.size(); ++i) {
      // Backward products read saved tensors, whose halo the forward pass has already fetched.
      if (signature.gradient.empty() || signature.inputs[i].name[0] == 'd')
        add_halo(signature.inputs[i], rule.inputs[i]);
    }
    for (std::size_t i = 0; i < rule.outputs.size(); ++i) add_halo(signature.outputs[i], rule.outputs[i]);
  };
  add_partials(forward);
  for (Gradient gradient : gradients_of(forward)) {
    if (gradient.name.empty()) gradient.name = "grad";  // passes through; partial where the operand lacks the axis
    add_partials(gradient_signature(forward, gradient));
  }
  return volume;
}

std::string print(const SplitVolume& volume) {
  std::string text;
  if (!volume.all_reduced.empty()) {
    std::vector<std::string> terms;
    for (const VolumeTerm& term : volume.all_reduced) terms.push_back(term.expression);
    text = fmt::format("2(n-1)/n·({})", fmt::join(terms, " + "));
  }
  for (const VolumeTerm& term : volume.halo) text += (text.empty() ? "" : " + ") + term.expression;
  return text.empty() ? "0" : text;
}

}  // namespace weft
