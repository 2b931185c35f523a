#include "graph/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "base/check.h"
#include "base/checked.h"
#include "base/suggest.h"
#include "graph/declaration.h"
#include "graph/notation.h"

namespace weft {
namespace {

const std::array<const OpEntry*, kOpKinds>& entries() {
  static const auto table = [] {
    std::array<const OpEntry*, kOpKinds> all{};
    for (auto group : {contraction_operators(), normalisation_operators(), pointwise_operators(), routing_operators(),
                       movement_operators(), training_operators()})
      for (const OpEntry& entry : group) all[static_cast<std::size_t>(entry.kind)] = &entry;
    for (std::size_t kind = 0; kind < all.size(); ++kind)
      WEFT_CHECK(all[kind], "operator kind {} has no declaration", kind);
    return all;
  }();
  return table;
}

const OpEntry& entry_of(OpKind kind) { return *entries()[static_cast<std::size_t>(kind)]; }

std::vector<std::string> words(std::string_view text, char separator = ' ') {
  std::vector<std::string> result;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) result.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return result;
}

bool has_word(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

Status check_attrs(const OpEntry& entry, const Attrs& attrs) {
  std::vector<std::string> names;
  std::map<std::string, std::string, std::less<>> types;
  for (const std::string& item : words(entry.attrs)) {
    const std::size_t colon = item.find(':');
    names.push_back(item.substr(0, colon));
    types[names.back()] = item.substr(colon + 1);
  }
  for (const auto& [name, value] : attrs) {
    const auto type = types.find(name);
    if (type == types.end()) return error("{}: unknown attribute '{}'{}", entry.name, name, did_you_mean(name, names));
    const bool fits = type->second == "int"   ? value.index() == 0
                      : type->second == "num" ? value.index() <= 1
                      : type->second == "str" ? value.index() == 2
                                              : value.index() == 3;
    if (!fits) return error("{}: attribute '{}' must be {}", entry.name, name, type->second);
  }
  return Ok{};
}

// Replaces every ellipsis by `count` named axes. Elementwise operands (ellipsis only) take the names usual for their
// rank.
void expand_ellipses(Notation& notation, std::size_t count, bool elementwise, bool parameter_shaped) {
  std::vector<std::string> names;
  if (parameter_shaped) {
    for (std::size_t i = 0; i < count; ++i) names.push_back(fmt::format("i{}", i));
  } else if (elementwise) {
    names = axis_names_for_rank(count);
  } else {
    for (std::size_t i = 0; i < count; ++i) names.push_back(i == 0 ? "b" : i == 1 ? "s" : fmt::format("i{}", i));
  }
  for (auto* operands : {&notation.inputs, &notation.outputs})
    for (NotationOperand& operand : *operands)
      for (std::size_t d = 0; d < operand.dims.size(); ++d) {
        if (!operand.dims[d].ellipsis) continue;
        operand.dims.erase(operand.dims.begin() + static_cast<std::ptrdiff_t>(d));
        for (std::size_t i = 0; i < count; ++i)
          operand.dims.insert(operand.dims.begin() + static_cast<std::ptrdiff_t>(d + i),
                              NotationDim{false, {names[i]}, ""});
        break;
      }
}

// Binds axis names to indices and sizes while the inputs are matched against the notation.
class AxisBinder {
 public:
  AxisBinder(std::string_view op, Signature& signature) : op_(op), signature_(signature) {}

  int index(const std::string& name) {
    int axis = signature_.axis_named(name);
    if (axis < 0) {
      axis = static_cast<int>(signature_.axes.size());
      signature_.axes.push_back({name, kUnknown, AxisKind::Attribute, 1});
    }
    return axis;
  }
  std::int64_t& size(int axis) { return signature_.axes[static_cast<std::size_t>(axis)].size; }

  Status set(const std::string& name, std::int64_t value, std::string_view where) {
    std::int64_t& known = size(index(name));
    if (value <= 0) return error("{}: axis {} of {} would have size {}", op_, name, where, value);
    if (known != kUnknown && known != value)
      return error("{}: axis {} is {} in {} but {} elsewhere", op_, name, value, where, known);
    known = value;
    return Ok{};
  }

  // Matches a product dimension of size `extent`: at most one factor may still be unknown.
  Status match_product(const NotationDim& dim, std::int64_t extent, const std::string& where) {
    std::int64_t known = 1;
    const std::string* open = nullptr;
    for (const std::string& name : dim.factors) {
      const std::int64_t factor = size(index(name));
      if (factor == kUnknown) {
        if (open) return error("{}: {} does not tell the sizes of {} and {}", op_, where, *open, name);
        open = &name;
      } else {
        const auto product = checked_mul(known, factor);
        if (!product) return error("{}: {} overflows", op_, where);
        known = *product;
      }
    }
    if (!open) {
      if (known != extent)
        return error("{}: dimension {} is {}, but {} = {}", op_, where, extent, fmt::join(dim.factors, "·"), known);
      return Ok{};
    }
    if (extent % known != 0) return error("{}: dimension {} of {} is not a multiple of {}", op_, where, extent, known);
    return set(*open, extent / known, where);
  }

  static constexpr std::int64_t kUnknown = 0;

 private:
  std::string_view op_;
  Signature& signature_;
};

struct WindowTable {
  const WindowSizes& sizes;
  std::vector<std::string> axes;  // windowed axes in order of appearance

  Window of(const std::string& axis, int kernel) {
    auto at = std::find(axes.begin(), axes.end(), axis);
    if (at == axes.end()) at = axes.insert(axes.end(), axis);
    const auto i = static_cast<std::size_t>(at - axes.begin());
    const auto pick = [&](const std::vector<std::int64_t>& list, std::int64_t fallback) {
      return i < list.size() ? list[i] : fallback;
    };
    return {kernel, pick(sizes.stride, 1), pick(sizes.dilation, 1), pick(sizes.pad_low, 0), pick(sizes.pad_high, 0)};
  }
};

// How many positions a window takes over a dimension of `extent`: the usual convolution arithmetic.
Result<std::int64_t> window_count(std::string_view op, const Window& window, std::int64_t extent, std::int64_t kernel,
                                  bool ceil) {
  constexpr std::int64_t kLimit = 1LL << 40;
  if (window.stride <= 0 || window.dilation <= 0 || window.stride > kLimit || window.dilation > kLimit ||
      kernel > kLimit || extent > kLimit)
    return error("{}: stride {} and dilation {} must be positive and sane", op, window.stride, window.dilation);
  if (window.pad_low < 0 || window.pad_high < 0 || window.pad_low > kLimit || window.pad_high > kLimit)
    return error("{}: padding {}/{} must be non-negative", op, window.pad_low, window.pad_high);
  std::int64_t reach = 0;
  if (__builtin_mul_overflow(window.dilation, kernel - 1, &reach)) return error("{}: dilation · kernel overflows", op);
  const std::int64_t room = extent + window.pad_low + window.pad_high - reach - 1;
  if (room < 0)
    return error("{}: a kernel of {} (dilation {}) does not fit {} elements padded by {} and {}", op, kernel,
                 window.dilation, extent, window.pad_low, window.pad_high);
  std::int64_t count = (ceil ? ceil_div(room, window.stride) : room / window.stride) + 1;
  // A window must start inside the input or its left padding (PyTorch's rule for ceil mode).
  if (ceil && (count - 1) * window.stride >= extent + window.pad_low) --count;
  return count;
}

Result<DimIndex> bind_dim(const NotationDim& dim, AxisBinder& binder, WindowTable& windows, std::string_view op) {
  DimIndex bound;
  for (const std::string& name : dim.factors) {
    const int axis = binder.index(name);
    if (binder.size(axis) == AxisBinder::kUnknown) return error("{}: nothing determines the size of axis {}", op, name);
    bound.factors.push_back(axis);
    const auto product = checked_mul(bound.size, binder.size(axis));
    if (!product) return error("{}: dimension size overflows", op);
    bound.size = *product;
  }
  if (!dim.kernel.empty()) bound.window = windows.of(dim.factors[0], binder.index(dim.kernel));
  return bound;
}

void classify_axes(Signature& signature, const std::vector<std::string>& sample, const std::vector<std::string>& whole,
                   const std::vector<std::string>& parameter) {
  AxisSet in_output, in_weight;
  for (const Operand& output : signature.outputs) in_output = in_output | output.axes();
  for (int i = 0; i < signature.operand_count(); ++i)
    if (signature.operand(i).weight) in_weight = in_weight | signature.operand(i).axes();
  for (std::size_t i = 0; i < signature.axes.size(); ++i) {
    Axis& axis = signature.axes[i];
    const int a = static_cast<int>(i);
    axis.kind = has_word(whole, axis.name)                                ? AxisKind::Whole
                : !in_output.contains(a)                                  ? AxisKind::Reduction
                : has_word(sample, axis.name)                             ? AxisKind::Sample
                : in_weight.contains(a) || has_word(parameter, axis.name) ? AxisKind::Parameter
                                                                          : AxisKind::Attribute;
  }
}

AxisSet parse_contraction(const Signature& signature, const std::string& text) {
  AxisSet set;
  if (text == "*") {
    for (std::size_t i = 0; i < signature.axes.size(); ++i) set.insert(static_cast<int>(i));
    return set;
  }
  for (const std::string& name : words(text, '.')) {
    const int axis = signature.axis_named(name);
    if (axis >= 0) set.insert(axis);
  }
  return set;
}

Reducer reducer_named(std::string_view name) {
  for (Reducer reducer : {Reducer::Sum, Reducer::Max, Reducer::LogSumExp, Reducer::SoftmaxMerge})
    if (name_of(reducer) == name) return reducer;
  WEFT_CHECK(false, "no reducer '{}'", name);
}

// Applies "operand:value" items of a declaration.
template <class F>
void for_each_item(const std::string& list, F&& apply) {
  for (const std::string& item : words(list)) {
    const std::size_t colon = item.find(':');
    apply(item.substr(0, colon), item.substr(colon + 1));
  }
}

Operand* find_operand(std::vector<Operand>& operands, std::string_view name) {
  for (Operand& operand : operands)
    if (operand.name == name) return &operand;
  return nullptr;
}

std::uint64_t input_mask(const Signature& signature, const std::string& group) {
  // Only concat has more inputs than bits, and it is linear in all of them.
  if (group == "*" || signature.inputs.size() > 64) return ~std::uint64_t{0};
  std::uint64_t mask = 0;
  for (const std::string& name : words(group, '+'))
    for (std::size_t i = 0; i < signature.inputs.size(); ++i)
      if (signature.inputs[i].name == name) mask |= std::uint64_t{1} << i;
  return mask;
}

struct ParsedGradient {
  Gradient gradient;
  std::vector<std::string> contractions;
};

// "grad_weight: dy x -> dw [*]" or "x = dy".
ParsedGradient parse_gradient(std::string_view text) {
  ParsedGradient parsed;
  if (const std::size_t equals = text.find(" = "); equals != std::string_view::npos) {
    parsed.gradient.writes = {"d" + std::string(text.substr(0, equals))};
    parsed.gradient.reads = {std::string(text.substr(equals + 3))};
    return parsed;
  }
  if (const std::size_t bracket = text.find(" ["); bracket != std::string_view::npos) {
    parsed.contractions = words(text.substr(bracket + 2, text.size() - bracket - 3));
    text = text.substr(0, bracket);
  }
  const std::size_t colon = text.find(':'), arrow = text.find(" -> ");
  WEFT_CHECK(colon != std::string_view::npos && arrow != std::string_view::npos, "gradient '{}'", text);
  parsed.gradient.name = std::string(text.substr(0, colon));
  parsed.gradient.reads = words(text.substr(colon + 1, arrow - colon - 1));
  parsed.gradient.writes = words(text.substr(arrow + 4));
  return parsed;
}

}  // namespace

std::string_view name_of(OpKind kind) { return entry_of(kind).name; }

std::optional<OpKind> op_kind_named(std::string_view name) {
  for (const OpEntry* entry : entries())
    if (entry->name == name) return entry->kind;
  return std::nullopt;
}

std::vector<std::string> op_kind_names() {
  std::vector<std::string> names;
  for (const OpEntry* entry : entries()) names.emplace_back(entry->name);
  return names;
}

std::string print(const TensorType& type) {
  return fmt::format("{}[{}]", name_of(type.dtype), fmt::join(type.shape, ","));
}

Result<TensorType> parse_tensor_type(std::string_view text) {
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos || text.back() != ']') return error("type '{}': write dtype[size,…]", text);
  const auto dtype = dtype_named(text.substr(0, open));
  if (!dtype) return error("type '{}': unknown element type '{}'", text, text.substr(0, open));
  TensorType type{.dtype = *dtype, .shape = {}};
  for (const std::string& item : words(text.substr(open + 1, text.size() - open - 2), ',')) {
    WEFT_TRY(const std::int64_t extent, parse_integer(item, "dimension"));
    if (extent <= 0) return error("type '{}': dimensions must be positive", text);
    type.shape.push_back(extent);
  }
  return type;
}

Result<std::string> output_type(const Attrs& attrs) {
  if (!attrs.has("to")) return std::string();
  const std::string_view to = attrs.text("to", "");
  const auto dtype = dtype_named(to);
  if (!dtype) return error("to '{}': not an element type", to);
  return fmt::format(":{}", name_of(*dtype));
}

std::vector<std::string> axis_names_for_rank(std::size_t rank) {
  switch (rank) {
    case 1:
      return {"d"};
    case 2:
      return {"b", "d"};
    case 3:
      return {"b", "s", "d"};
    case 4:
      return {"b", "c", "h", "w"};
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < rank; ++i) names.push_back(i == 0 ? "b" : fmt::format("i{}", i));
  return names;
}

Result<Signature> make_signature(OpKind kind, const Attrs& attrs, std::span<const TensorType> inputs) {
  const OpEntry& entry = entry_of(kind);
  const std::string_view op = entry.name;
  for (const TensorType& input : inputs) {
    const auto elements = checked_product(input.shape);
    if (!elements || *elements > (1LL << 56)) return error("{}: an input of {} overflows", op, print(input));
    for (std::int64_t extent : input.shape)
      if (extent <= 0) return error("{}: an input {} has a dimension of {}", op, print(input), extent);
  }
  WEFT_TRY_OK(check_attrs(entry, attrs));
  WEFT_TRY(const Declaration declaration, entry.declare(attrs, inputs));
  WEFT_TRY(Notation notation, parse_notation(declaration.notation));
  if (notation.inputs.size() != inputs.size())
    return error("{}: takes {} inputs ({}), not {}", op, notation.inputs.size(), declaration.notation, inputs.size());

  // The number of axes an ellipsis stands for follows from the first operand that has one.
  std::optional<std::size_t> ellipsis;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto& dims = notation.inputs[i].dims;
    const bool has = std::any_of(dims.begin(), dims.end(), [](const NotationDim& dim) { return dim.ellipsis; });
    if (!has) continue;
    if (inputs[i].shape.size() + 1 < dims.size())
      return error("{}: {} is {}, too few dimensions", op, notation.inputs[i].name, print(inputs[i]));
    const std::size_t count = inputs[i].shape.size() + 1 - dims.size();
    if (ellipsis && *ellipsis != count)
      return error("{}: {} is {}: another number of dimensions than the first input's", op, notation.inputs[i].name,
                   print(inputs[i]));
    ellipsis = count;
  }
  bool elementwise = true;  // no operand has dimensions besides its ellipsis
  for (const auto* operands : {&notation.inputs, &notation.outputs})
    for (const NotationOperand& operand : *operands)
      if (operand.dims.size() > 1) elementwise = false;
  std::vector<std::string> sample = words(declaration.sample);
  const bool sample_ellipsis = has_word(sample, "...");
  expand_ellipses(notation, ellipsis.value_or(0), elementwise, declaration.parameter_shaped);

  Signature signature;
  signature.kind = kind;
  signature.attrs = attrs;
  signature.pointwise_per_element = declaration.pointwise;
  AxisBinder binder(op, signature);
  WindowTable windows{declaration.windows, {}};
  for (const auto& [name, size] : declaration.sizes) WEFT_TRY_OK(binder.set(name, size, "the attributes"));

  // Pass one: everything but windows, which need the kernel's size. A dimension that does not yet determine its axes is
  // tried again after the others.
  std::vector<std::pair<std::size_t, std::size_t>> open;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const NotationOperand& operand = notation.inputs[i];
    if (operand.dims.size() != inputs[i].shape.size())
      return error("{}: {} is {}, but has {} dimensions in {}", op, operand.name, print(inputs[i]), operand.dims.size(),
                   declaration.notation);
    for (std::size_t d = 0; d < operand.dims.size(); ++d) open.emplace_back(i, d);
  }
  std::optional<Error> stuck;
  while (!open.empty()) {
    std::vector<std::pair<std::size_t, std::size_t>> later;
    stuck.reset();
    for (const auto& [i, d] : open) {
      const NotationDim& dim = notation.inputs[i].dims[d];
      const std::int64_t extent = inputs[i].shape[d];
      const std::string where = fmt::format("{} of {}", d, notation.inputs[i].name);
      if (dim.factors.empty()) {
        if (extent != 1) return error("{}: dimension {} is {}, expected 1", op, where, extent);
        continue;
      }
      int unknown = 0;
      for (const std::string& name : dim.factors) unknown += binder.size(binder.index(name)) == AxisBinder::kUnknown;
      if (!dim.kernel.empty()) {
        const int kernel = binder.index(dim.kernel);
        if (binder.size(kernel) == AxisBinder::kUnknown) {
          stuck = error("{}: nothing determines the kernel size {}", op, dim.kernel);
          later.emplace_back(i, d);
          continue;
        }
        WEFT_TRY(const std::int64_t count, window_count(op, windows.of(dim.factors[0], kernel), extent,
                                                        binder.size(kernel), declaration.windows.ceil));
        WEFT_TRY_OK(binder.set(dim.factors[0], count, where));
        continue;
      }
      if (unknown > 1) {
        stuck = error("{}: dimension {} does not determine its axes", op, where);
        later.emplace_back(i, d);
        continue;
      }
      WEFT_TRY_OK(binder.match_product(dim, extent, where));
    }
    if (later.size() == open.size()) return *stuck;
    open = std::move(later);
  }

  // The type of outputs that declare none: the first floating-point input's, else that of the integers being moved.
  DType dtype = inputs.empty() ? DType::F32 : inputs.back().dtype;
  for (auto input = inputs.rbegin(); input != inputs.rend(); ++input)
    if (is_floating(input->dtype)) dtype = input->dtype;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Operand operand{.name = notation.inputs[i].name, .dims = {}, .dtype = inputs[i].dtype, .weight = inputs[i].weight};
    for (std::size_t d = 0; d < inputs[i].shape.size(); ++d) {
      WEFT_TRY(DimIndex dim, bind_dim(notation.inputs[i].dims[d], binder, windows, op));
      dim.size = inputs[i].shape[d];
      operand.dims.push_back(std::move(dim));
    }
    signature.inputs.push_back(std::move(operand));
  }
  for (const NotationOperand& output : notation.outputs) {
    Operand operand{.name = output.name, .dims = {}, .dtype = output.dtype.value_or(dtype)};
    for (const NotationDim& notation_dim : output.dims) {
      WEFT_TRY(DimIndex dim, bind_dim(notation_dim, binder, windows, op));
      operand.dims.push_back(std::move(dim));
    }
    const auto elements = checked_product(operand.shape());
    if (!elements || *elements > (1LL << 56)) return error("{}: output {} overflows", op, output.name);
    signature.outputs.push_back(std::move(operand));
  }
  if (signature.axes.size() >= kMaxAxes) return error("{}: more than {} axes", op, kMaxAxes - 1);

  if (sample_ellipsis)
    for (std::size_t i = 0; i < ellipsis.value_or(0); ++i)
      sample.push_back(i == 0 ? "b" : i == 1 ? "s" : fmt::format("i{}", i));
  classify_axes(signature, sample, words(declaration.whole), words(declaration.parameter));
  for (const std::string& product : words(declaration.contractions))
    signature.contractions.push_back(parse_contraction(signature, product));
  for (const std::string& group : words(declaration.linear))
    signature.linear_in.push_back(input_mask(signature, group));
  for_each_item(declaration.reducers, [&](const std::string& name, const std::string& value) {
    if (Operand* output = find_operand(signature.outputs, name)) output->reducer = reducer_named(value);
  });
  for_each_item(declaration.local, [&](const std::string& name, const std::string& axes) {
    Operand* output = find_operand(signature.outputs, name);
    for (const std::string& axis : words(axes, ','))
      if (const int index = signature.axis_named(axis); output && index >= 0) output->local.insert(index);
  });
  for_each_item(declaration.aliases, [&](const std::string& name, const std::string& input) {
    Operand* output = find_operand(signature.outputs, name);
    for (std::size_t i = 0; i < signature.inputs.size(); ++i)
      if (output && signature.inputs[i].name == input) output->aliases = static_cast<int>(i);
  });
  return signature;
}

bool adds_bias(const Signature& signature) {
  return signature.kind == OpKind::Bias && signature.gradient.empty() && signature.outputs[0].dims.size() == 4;
}

int head_copies_of(const Signature& signature) {
  if (signature.kind != OpKind::Matmul) return 0;
  int copies = 0;
  for (int i = 0; i < signature.operand_count(); ++i) {
    const Operand& operand = signature.operand(i);
    if (!operand.dims.empty() && operand.dims.back().factors.size() > 1) ++copies;
  }
  return signature.gradient.empty() ? copies : std::min(copies, 1);
}

std::vector<Gradient> gradients_of(const Signature& forward) {
  std::vector<TensorType> inputs;
  for (const Operand& input : forward.inputs) inputs.push_back({input.dtype, input.shape()});
  const Result<Declaration> declaration = entry_of(forward.kind).declare(forward.attrs, inputs);
  WEFT_CHECK(declaration.ok(), "a signature that no longer declares: {}", declaration.error().message);
  std::vector<Gradient> gradients;
  for (const std::string& text : declaration->gradients) gradients.push_back(parse_gradient(text).gradient);
  return gradients;
}

Signature gradient_signature(const Signature& forward, const Gradient& gradient) {
  Signature signature;
  signature.kind = forward.kind;
  signature.gradient = gradient.name;
  signature.attrs = forward.attrs;
  signature.axes = forward.axes;
  signature.pointwise_per_element = forward.pointwise_per_element;

  const auto forward_operand = [&](std::string_view name) -> const Operand& {
    for (int i = 0; i < forward.operand_count(); ++i)
      if (forward.operand(i).name == name) return forward.operand(i);
    WEFT_CHECK(false, "gradient {} of {} names an unknown operand {}", gradient.name, name_of(forward.kind), name);
  };
  const auto is_forward = [&](std::string_view name) {
    for (int i = 0; i < forward.operand_count(); ++i)
      if (forward.operand(i).name == name) return true;
    return false;
  };
  const auto copy = [&](const std::string& name) {
    // A name that is no forward operand is "d" + one: its gradient, with the same indices.
    Operand operand = is_forward(name) ? forward_operand(name) : forward_operand(std::string_view(name).substr(1));
    operand.name = name;
    operand.reducer = Reducer::Sum;
    operand.aliases = -1;
    return operand;
  };
  for (const std::string& name : gradient.reads) signature.inputs.push_back(copy(name));
  for (const std::string& name : gradient.writes) {
    signature.outputs.push_back(copy(name));
    signature.outputs.back().local = {};
  }

  // The same rules as forward, seen from the new outputs; the declared sample and whole axes stay.
  std::vector<std::string> sample, whole, parameter;
  for (const Axis& axis : forward.axes) {
    if (axis.kind == AxisKind::Sample) sample.push_back(axis.name);
    if (axis.kind == AxisKind::Whole) whole.push_back(axis.name);
    if (axis.kind == AxisKind::Parameter) parameter.push_back(axis.name);
  }
  classify_axes(signature, sample, whole, parameter);

  std::vector<TensorType> inputs;
  for (const Operand& input : forward.inputs) inputs.push_back({input.dtype, input.shape()});
  const Result<Declaration> declaration = entry_of(forward.kind).declare(forward.attrs, inputs);
  // The gradient of a view is a view.
  const bool view = forward.contractions.empty() && forward.pointwise_per_element == 0 && forward.inputs.size() == 1 &&
                    forward.outputs.size() == 1 && forward.outputs[0].aliases == 0;
  if (view && signature.inputs.size() == 1 && signature.inputs[0].elements() == signature.outputs[0].elements())
    signature.outputs[0].aliases = 0;
  for (const std::string& text : declaration->gradients) {
    const ParsedGradient parsed = parse_gradient(text);
    if (parsed.gradient.name != gradient.name || parsed.gradient.writes != gradient.writes) continue;
    for (const std::string& product : parsed.contractions)
      signature.contractions.push_back(parse_contraction(signature, product));
  }
  // A backward product is linear in the gradients it reads, jointly (never in what was saved).
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < gradient.reads.size(); ++i)
    if (!is_forward(gradient.reads[i])) mask |= i < 64 ? std::uint64_t{1} << i : ~std::uint64_t{0};
  signature.linear_in.push_back(mask);
  return signature;
}

}  // namespace weft
