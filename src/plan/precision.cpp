#include "plan/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/suggest.h"
#include "cost/tuning.h"

namespace weft {
namespace {

struct TypeName {
  std::string_view name;
  DType stored;
  bool autocast = false;
  std::optional<Arithmetic> products = {};
  std::optional<Recipe> recipe = {};  // of narrow products; none: the stack's
};
constexpr std::array<TypeName, 14> kTypeNames = {{
    {"bf16", DType::BF16},
    {"fp16", DType::F16},
    {"fp32", DType::F32},
    {"tf32", DType::F32, false, Arithmetic::kTf32},
    {"fp8", DType::BF16, false, Arithmetic::kFp8},
    {"fp8-delayed", DType::BF16, false, Arithmetic::kFp8, Recipe::Delayed},
    {"fp8-current", DType::BF16, false, Arithmetic::kFp8, Recipe::Current},
    {"fp8-blockwise", DType::BF16, false, Arithmetic::kFp8, Recipe::Blockwise},
    {"fp8-rowwise", DType::BF16, false, Arithmetic::kFp8, Recipe::Rowwise},
    {"fp8-rowwise-gw-hp", DType::BF16, false, Arithmetic::kFp8, Recipe::RowwiseWide},
    {"mxfp8", DType::BF16, false, Arithmetic::kFp8, Recipe::Mx},
    {"nvfp4", DType::BF16, false, Arithmetic::kFp4, Recipe::Nv},
    {"amp-bf16", DType::BF16, true},
    {"amp-fp16", DType::F16, true},
}};

const TypeName* find_type_name(std::string_view name) {
  for (const TypeName& found : kTypeNames)
    if (found.name == name) return &found;
  // Other spellings of the plain types: float32, half.
  if (const auto dtype = dtype_named(name))
    for (const TypeName& found : kTypeNames)
      if (found.stored == *dtype) return &found;
  return nullptr;
}

// A device of which no peak is known may have units for anything.
bool multiplies_in(const DeviceSpec& device, Arithmetic arithmetic) {
  const bool described =
      std::any_of(device.peaks.begin(), device.peaks.end(), [](const auto& peak) { return peak.has_value(); });
  return !described || product_rate(device, arithmetic).arithmetic == arithmetic;
}

// The first of a stack's type and the others that all devices have units for, and why it is not the stack's.
struct DefaultType {
  std::string_view name;
  std::string reason;  // empty: it is the stack's
};
DefaultType default_type(DType stack_weight, const DeviceKinds& devices) {
  const DType wanted = stack_weight == DType::F16 ? DType::F16 : DType::BF16;
  std::string reason;
  for (DType dtype : {wanted, DType::BF16, DType::F16}) {
    const auto lacking = std::find_if(devices.begin(), devices.end(), [&](const DeviceSpec* device) {
      return !multiplies_in(*device, arithmetic_of(dtype));
    });
    if (lacking == devices.end()) return {name_of(dtype), std::move(reason)};
    if (reason.empty()) reason = fmt::format(": {} has no {} units", (*lacking)->name, name_of(dtype));
  }
  return {name_of(DType::F32), std::move(reason)};
}

}  // namespace

Result<Precision> choose_precision(std::string_view asked, const SoftwareStack& stack, const DeviceKinds& devices,
                                   std::vector<std::string>& assumptions) {
  const DType stack_weight = stack.weight_dtype.value.value_or(DType::BF16);
  const DefaultType by_default = default_type(stack_weight, devices);
  const TypeName* found = find_type_name(asked.empty() ? by_default.name : asked);
  if (!found) {
    std::vector<std::string> names;
    for (const TypeName& each : kTypeNames) names.emplace_back(each.name);
    return error("--dtype '{}': write one of {}{}", asked, fmt::join(names, ", "), did_you_mean(asked, names));
  }
  Precision precision{std::string(found->name), found->stored, found->stored, false};
  precision.products = found->products;
  if (found->products && found->products != Arithmetic::kTf32)
    precision.recipe = found->recipe.value_or(stack.recipe.value);
  if (asked.empty()) assumptions.push_back(fmt::format("dtype {}{} (--dtype)", precision.name, by_default.reason));
  if (precision.recipe) {
    const RecipeTraits& traits = traits_of(*precision.recipe);
    assumptions.push_back(
        fmt::format("{}: linears of the blocks multiply in it, {}{}; tensors are stored in bf16", found->name,
                    traits.what, found->recipe ? "" : fmt::format(", {}'s recipe ({})", stack.name, traits.dtype)));
  }
  // Gradients as the stack stores them: in the weights' type, or in their own.
  if (const auto gradient = stack.gradient_dtype.value; gradient && *gradient != stack_weight)
    precision.gradients = *gradient;
  const bool autocast = found->stored != DType::F32 && (found->autocast || stack_weight == DType::F32);
  if (autocast) precision.gradients = DType::F32;
  precision.autocast = autocast && stack.autocast.value;
  if (found->stored != DType::F32) precision.moments = stack.moment_dtype.value.value_or(DType::F32);
  precision.masters = found->stored != DType::F32 && (autocast || stack.master_dtype.value.has_value());
  if (autocast)
    assumptions.push_back(fmt::format(
        "fp32 weights cast to {0} where they are used: counted as {0} weights and fp32 masters, {1} bytes more "
        "per parameter",
        name_of(found->stored), bits_of(found->stored) / 8));
  return precision;
}

std::vector<std::string> stand_ins(const Precision& precision, const DeviceKinds& devices) {
  const Arithmetic of_tensors = arithmetic_of(precision.stored);
  std::vector<Arithmetic> wanted = {precision.products.value_or(of_tensors)};
  // In fp8 and fp4 runs the products outside the blocks keep the tensors' type.
  if (wanted[0] != of_tensors && wanted[0] != Arithmetic::kTf32) wanted.push_back(of_tensors);
  std::vector<std::string> found;
  for (const DeviceSpec* device : devices)
    for (Arithmetic arithmetic : wanted)
      if (!multiplies_in(*device, arithmetic))
        found.push_back(fmt::format("{0}: {1} has no {0} units, products run in {2}", name(arithmetic), device->name,
                                    name(product_rate(*device, arithmetic).arithmetic)));
  // Units that multiply fp4 scale blocks of 16 and 32 elements; fp8 units without them have one scale a product.
  if (precision.recipe == Recipe::Mx)
    for (const DeviceSpec* device : devices)
      if (multiplies_in(*device, Arithmetic::kFp8) && !multiplies_in(*device, Arithmetic::kFp4))
        found.push_back(fmt::format("{}: {} has no units for scales of 32 elements, products scale their sums",
                                    precision.name, device->name));
  return found;
}

NumberTypes number_types(const Precision& precision, const SoftwareStack& stack) {
  const bool narrow = precision.stored != DType::F32;  // fp32 runs send fp32
  const Recipe recipe = precision.recipe.value_or(stack.recipe.value);
  return {.products = precision.products,
          .sent_gradients = precision.sent_gradients ? precision.sent_gradients
                            : narrow                 ? stack.gradient_communication_dtype.value
                                                     : std::nullopt,
          .sent_parameters = narrow ? stack.weight_communication_dtype.value : std::nullopt,
          .keeps_casts = stack.keeps_casts.value && !traits_of(recipe).of_rows,
          .gathers_casts = !traits_of(recipe).of_rows,
          .gathers_weights = stack.narrow_gathers.value && traits_of(recipe).one_copy,
          .wide_weight_gradients = recipe == Recipe::RowwiseWide};
}

}  // namespace weft
