#include "profile/event.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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
  std::vector<std::string> names = {"forward"};
  for (const Gradient& gradient : gradients_of(forward)) {
    if (gradient.name.empty()) continue;
    if (gradient.name == event.direction) return gradient_signature(forward, gradient);
    names.push_back(gradient.name);
  }
  return error("direction '{}': {} has {}", event.direction, event.op, fmt::join(names, ", "));
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
  return Ok{};
}

Status check(const Sample& sample) {
  if (!(sample.mean_s > 0 && sample.mean_s < 1e6))
    return error("time of {} s: above 0 and below a million seconds", sample.mean_s);
  if (!(sample.spread_s >= 0 && sample.spread_s < 1e6)) return error("spread of {} s: 0 or more", sample.spread_s);
  return in_range("count", sample.count, 1, std::int64_t{1} << 50);
}

}  // namespace weft
