#include "profile/event.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <sstream>

#include "base/suggest.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 8> kCollectives = {"all-reduce", "reduce-scatter", "all-gather", "all-to-all",
                                                          "halo",       "transfer",       "host-copy",  "shift"};

Status in_range(std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) return error("{} {}: from {} to {}", what, value, least, most);
  return Ok{};
}

std::vector<std::string> split(std::string_view text, std::string_view at) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = text.find_first_of(at);
    if (end != 0) words.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return words;
}

// Of a gradient that passes through unchanged, where it is an operator all the same (a cast, a part).
std::string operator_name(const Gradient& gradient) {
  return gradient.name.empty() ? "grad_" + gradient.writes[0].substr(1) : gradient.name;
}

}  // namespace

bool has_weights(OpKind kind) {
  switch (kind) {
    case OpKind::Linear:
    case OpKind::ExpertLinear:
    case OpKind::Conv1d:
    case OpKind::Conv2d:
    case OpKind::LayerNorm:
    case OpKind::RmsNorm:
    case OpKind::BatchNorm:
    case OpKind::Embedding:
    case OpKind::Bias:
      return true;
    default:
      return false;
  }
}

Sample pooled(const std::vector<Sample>& samples) {
  WEFT_CHECK(!samples.empty(), "no samples to pool");
  double runs = 0, sum = 0, squares = 0;
  Sample all;
  for (const Sample& sample : samples) {
    const auto count = static_cast<double>(sample.count);
    runs += count;
    sum += count * sample.mean_s;
    all.count += sample.count;
    all.date = std::max(all.date, sample.date);
  }
  all.mean_s = sum / runs;
  for (const Sample& sample : samples) {
    const double off = sample.mean_s - all.mean_s;
    squares += static_cast<double>(sample.count) * (sample.spread_s * sample.spread_s + off * off);
  }
  all.spread_s = std::sqrt(squares / runs);
  all.source = samples.size() == 1 ? samples.front().source : "";
  return all;
}

bool is_communication(const Event& event) {
  return std::find(kCollectives.begin(), kCollectives.end(), event.op) != kCollectives.end();
}

Result<Signature> signature_of(const Event& event) {
  const std::optional<OpKind> kind = op_kind_named(event.op);
  if (!kind) {
    std::vector<std::string> names = op_kind_names();
    names.insert(names.end(), kCollectives.begin(), kCollectives.end());
    return error("operator '{}': Weft has none of that name{}", event.op, did_you_mean(event.op, names));
  }
  WEFT_TRY(const Attrs attrs, parse_attrs(event.attributes));
  std::vector<TensorType> inputs;
  std::istringstream words(event.shapes);
  for (std::string word; words >> word;) {
    WEFT_TRY(TensorType type, parse_tensor_type(word));
    type.weight = !inputs.empty() && has_weights(*kind);
    inputs.push_back(std::move(type));
  }
  WEFT_TRY(Signature forward, make_signature(*kind, attrs, inputs));
  if (event.direction == "forward") return forward;
  const std::size_t bracket = event.direction.find('(');
  const std::string name = event.direction.substr(0, bracket);
  std::vector<std::string> names = {"forward"};
  for (Gradient& gradient : gradients_of(forward)) {
    if (!gradient.name.empty()) names.push_back(gradient.name);
    gradient.name = operator_name(gradient);
    if (gradient.name != name) continue;
    if (bracket != std::string::npos) {
      if (event.direction.back() != ')') return error("direction '{}': no ) at its end", event.direction);
      const std::vector<std::string> reads = split(event.direction.substr(bracket + 1), ",)");
      std::erase_if(gradient.reads, [&](const std::string& read) {
        return std::find(reads.begin(), reads.end(), read) == reads.end();
      });
      if (gradient.reads != reads)
        return error("direction '{}': {} does not read these, in this order", event.direction, gradient.name);
    }
    return gradient_signature(forward, gradient);
  }
  return error("direction '{}': {} has {}", event.direction, event.op, fmt::join(names, ", "));
}

Result<AxisSlices> slices_of(const Event& event, const Signature& signature) {
  AxisSlices slices = whole_axes(signature);
  for (const std::string& word : split(event.part, " ")) {
    const std::size_t equals = word.find('=');
    const int axis = signature.axis_named(word.substr(0, equals));
    if (axis < 0) return error("part '{}': {} has no such axis", word, event.op);
    const std::int64_t size = signature.axes[static_cast<std::size_t>(axis)].size;
    AxisSlice slice;
    const char *at = word.data() + std::min(equals + 1, word.size()), *const end = word.data() + word.size();
    bool good = equals != std::string::npos;
    const auto number = [&](std::int64_t& value) {
      const auto [rest, status] = std::from_chars(at, end, value);
      good = good && status == std::errc();
      at = rest;
    };
    number(slice.begin);
    good = good && at != end && *at++ == ':';
    if (good) number(slice.end);
    if (good && at != end) {
      good = *at++ == '/';
      if (good) number(slice.outer);
    }
    if (!good || at != end || slice.outer < 1 || size % slice.outer != 0 || slice.begin < 0 ||
        slice.end <= slice.begin || slice.end > size / slice.outer)
      return error("part '{}': write {}=begin:end within {}, or begin:end/blocks", word, word.substr(0, equals), size);
    slices[static_cast<std::size_t>(axis)] = slice;
  }
  return slices;
}

Event event_of(const Signature& forward, const Signature& signature, const AxisSlices& slices) {
  Event event;
  event.op = name_of(forward.kind);
  event.attributes = forward.attrs.empty() ? "" : print(forward.attrs);
  for (const Operand& input : forward.inputs)
    event.shapes += (event.shapes.empty() ? "" : " ") + print(TensorType{input.dtype, input.shape()});
  event.direction = signature.gradient.empty() ? "forward" : signature.gradient;
  for (const Gradient& gradient : gradients_of(forward)) {
    if (operator_name(gradient) != signature.gradient) continue;
    std::vector<std::string> reads;
    for (const Operand& input : signature.inputs) reads.push_back(input.name);
    if (reads != gradient.reads) event.direction += fmt::format("({})", fmt::join(reads, ","));
  }
  for (std::size_t axis = 0; axis < slices.size(); ++axis) {
    const AxisSlice& slice = slices[axis];
    if (slice == whole_axis(signature.axes[axis])) continue;
    event.part +=
        fmt::format("{}{}={}:{}", event.part.empty() ? "" : " ", signature.axes[axis].name, slice.begin, slice.end);
    if (slice.outer != 1) event.part += fmt::format("/{}", slice.outer);
  }
  return event;
}

Status check(const Event& event) {
  if (event.device.empty()) return error("device missing: which device was it measured on?");
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  if (is_communication(event)) {
    WEFT_TRY_OK(in_range("bytes", event.bytes, 1, kMost));
    WEFT_TRY_OK(in_range("members", event.members, 1, 1 << 24));
    WEFT_TRY_OK(in_range("nodes", event.nodes, 1, event.members));
    return in_range("most_per_node", event.most_per_node, (event.members + event.nodes - 1) / event.nodes,
                    event.members - event.nodes + 1);
  }
  WEFT_TRY_OK(in_range("bytes of a computation", event.bytes, 0, 0));
  WEFT_TRY_OK(in_range("members of a computation", event.members, 1, 1));
  const Result<Signature> signature = signature_of(event);
  if (!signature.ok()) return signature.error();
  const Result<AxisSlices> slices = slices_of(event, *signature);
  if (!slices.ok()) return slices.error();
  return Ok{};
}

Status check(const Sample& sample) {
  if (!(sample.mean_s > 0 && sample.mean_s < 1e6))
    return error("time of {} s: above 0 and below a million seconds", sample.mean_s);
  if (!(sample.spread_s >= 0 && sample.spread_s < 1e6)) return error("spread of {} s: 0 or more", sample.spread_s);
  return in_range("count", sample.count, 1, std::int64_t{1} << 50);
}

}  // namespace weft
