// "layers=12,vocab=32000": one table of fields per kind of model.
#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <span>

#include "base/suggest.h"
#include "base/units.h"
#include "models/zoo.h"

namespace weft {
namespace {

// An integer field with its range; `check` verifies that fields are consistent.
template <class Config>
struct IntegerField {
  std::string_view name;
  std::int64_t low, high;
  void (*set)(Config&, std::int64_t);
};
template <class Config>
struct TextField {
  std::string_view name;
  Status (*set)(Config&, std::string_view);
};

constexpr std::int64_t kMostSize = 1LL << 40;

// Decimal fractions, independent of the locale (from_chars).
Result<double> parse_number(std::string_view name, std::string_view text) {
  double value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || rest != text.data() + text.size() || !(value >= 0 && value < 1e9))
    return error("{}={}: not a non-negative number", name, text);
  return value;
}

template <class Enum>
struct Choice {
  std::string_view name;
  Enum value;
};

template <class Enum, std::size_t N>
Result<Enum> choose(std::string_view field, std::string_view text, const Choice<Enum> (&choices)[N]) {
  std::vector<std::string> names;
  for (const Choice<Enum>& choice : choices) {
    if (choice.name == text) return choice.value;
    names.emplace_back(choice.name);
  }
  return error("{}={}: write {}", field, text, fmt::join(names, ", "));
}

using T = TransformerConfig;
constexpr IntegerField<T> kTransformerIntegers[] = {
    {"layers", 1, 10'000, [](T& c, std::int64_t v) { c.layers = v; }},
    {"decoder_layers", 1, 10'000, [](T& c, std::int64_t v) { c.decoder_layers = v; }},
    {"hidden", 1, kMostSize, [](T& c, std::int64_t v) { c.hidden = v; }},
    {"ffn", 1, kMostSize, [](T& c, std::int64_t v) { c.ffn = v; }},
    {"heads", 1, kMostSize,
     [](T& c, std::int64_t v) {
       if (c.kv_heads == c.heads) c.kv_heads = v;  // multi-head attention without grouping stays so
       c.heads = v;
     }},
    {"kv_heads", 1, kMostSize, [](T& c, std::int64_t v) { c.kv_heads = v; }},
    {"head_dim", 1, kMostSize, [](T& c, std::int64_t v) { c.head_dim = v; }},
    {"vocab", 1, kMostSize, [](T& c, std::int64_t v) { c.vocab = v; }},
    {"context", 1, kMostSize,
     [](T& c, std::int64_t v) {
       if (c.position_rows > 0) c.position_rows += v - c.context;
       c.context = v;
     }},
    {"window", 0, kMostSize, [](T& c, std::int64_t v) { c.window = v; }},
    {"full_every", 0, 10'000, [](T& c, std::int64_t v) { c.full_every = v; }},
    {"mtp", 0, 16, [](T& c, std::int64_t v) { c.mtp = v; }},
    {"lora", 0, 65'536, [](T& c, std::int64_t v) { c.lora.rank = v; }},
    {"rotary_dim", 1, kMostSize, [](T& c, std::int64_t v) { c.rotary_dim = v; }},
    {"decoder_seq", 1, kMostSize, [](T& c, std::int64_t v) { c.decoder_seq = v; }},
    {"experts", 1, 100'000, [](T& c, std::int64_t v) { c.moe.experts = v; }},
    {"top_k", 1, 100'000, [](T& c, std::int64_t v) { c.moe.top_k = v; }},
    {"expert_ffn", 1, kMostSize, [](T& c, std::int64_t v) { c.moe.expert_ffn = v; }},
    {"shared_ffn", 0, kMostSize, [](T& c, std::int64_t v) { c.moe.shared_ffn = v; }},
    {"first_dense", 0, 10'000, [](T& c, std::int64_t v) { c.moe.first_dense = v; }},
    {"moe_every", 1, 10'000, [](T& c, std::int64_t v) { c.moe.every = v; }},
    {"expert_groups", 1, 100'000, [](T& c, std::int64_t v) { c.moe.expert_groups = v; }},
    {"top_groups", 0, 100'000, [](T& c, std::int64_t v) { c.moe.top_groups = v; }},
    {"shared_gate", 0, 1, [](T& c, std::int64_t v) { c.moe.shared_gate = v != 0; }},
    {"sigmoid_score", 0, 1, [](T& c, std::int64_t v) { c.moe.sigmoid_score = v != 0; }},
    {"correction_bias", 0, 1, [](T& c, std::int64_t v) { c.moe.correction_bias = v != 0; }},
    {"normalize", 0, 1, [](T& c, std::int64_t v) { c.moe.normalize = v != 0; }},
    {"kv_lora", 0, kMostSize, [](T& c, std::int64_t v) { c.mla.kv_lora = v; }},
    {"q_lora", 0, kMostSize, [](T& c, std::int64_t v) { c.mla.q_lora = v; }},
    {"rope", 0, kMostSize, [](T& c, std::int64_t v) { c.mla.rope = v; }},
    {"nope", 0, kMostSize, [](T& c, std::int64_t v) { c.mla.nope = v; }},
    {"value", 0, kMostSize, [](T& c, std::int64_t v) { c.mla.value = v; }},
    {"weigh_rows", 0, 1, [](T& c, std::int64_t v) { c.moe.weigh_rows = v != 0; }},
    {"masked", 0, kMostSize, [](T& c, std::int64_t v) { c.masked = v; }},
    {"image", 1, kMostSize, [](T& c, std::int64_t v) { c.image = v; }},
    {"patch", 1, kMostSize, [](T& c, std::int64_t v) { c.patch = v; }},
    {"classes", 1, kMostSize, [](T& c, std::int64_t v) { c.classes = v; }},
    {"bias", 0, 1,
     [](T& c, std::int64_t v) {
       c.qkv_bias = c.out_bias = c.mlp_bias = v != 0;
       if (c.norm != Norm::Rms) c.norm = v != 0 ? Norm::Layer : Norm::LayerNoBias;
     }},
    {"qkv_bias", 0, 1, [](T& c, std::int64_t v) { c.qkv_bias = v != 0; }},
    {"out_bias", 0, 1, [](T& c, std::int64_t v) { c.out_bias = v != 0; }},
    {"mlp_bias", 0, 1, [](T& c, std::int64_t v) { c.mlp_bias = v != 0; }},
    {"tied", 0, 1, [](T& c, std::int64_t v) { c.tied = v != 0; }},
    {"qk_norm", 0, 1, [](T& c, std::int64_t v) { c.qk_norm = v != 0; }},
    {"parallel_residual", 0, 1, [](T& c, std::int64_t v) { c.parallel_residual = v != 0; }},
    {"zigzag", 1, kMostSize, [](T& c, std::int64_t v) { c.zigzag = v; }},
    {"fused_attention", 0, 1, [](T& c, std::int64_t v) { c.fused_attention = v != 0; }},
};

Status set_positions(T& config, std::string_view text) {
  constexpr Choice<Positions> kChoices[] = {{"learned", Positions::Learned},
                                            {"rotary", Positions::Rotary},
                                            {"alibi", Positions::Alibi},
                                            {"relative", Positions::Relative},
                                            {"none", Positions::None}};
  WEFT_TRY(config.positions, choose("positions", text, kChoices));
  return Ok{};
}
Status set_activation(T& config, std::string_view text) {
  constexpr Choice<Activation> kChoices[] = {{"gelu", Activation::Gelu},           {"gelu_tanh", Activation::GeluTanh},
                                             {"relu", Activation::Relu},           {"relu2", Activation::Relu2},
                                             {"swiglu", Activation::SwiGlu},       {"geglu", Activation::GeGlu},
                                             {"geglu_tanh", Activation::GeGluTanh}};
  WEFT_TRY(config.activation, choose("activation", text, kChoices));
  return Ok{};
}
Status set_norm(T& config, std::string_view text) {
  constexpr Choice<Norm> kChoices[] = {
      {"layer", Norm::Layer}, {"layer_no_bias", Norm::LayerNoBias}, {"rms", Norm::Rms}};
  WEFT_TRY(config.norm, choose("norm", text, kChoices));
  return Ok{};
}
template <class Config>
Status set_dropout(Config& config, std::string_view text) {
  WEFT_TRY(config.dropout, parse_number("dropout", text));
  return Ok{};
}

// "2x4": the tokens of a sample in 2 parts, each of them in 4.
Status set_groups(T& config, std::string_view text) {
  config.moe.groups.clear();
  for (std::string_view rest = text; config.moe.groups.size() < 5;) {
    const std::size_t end = std::min(rest.find('x'), rest.size());
    const Result<std::int64_t> factor = parse_integer(rest.substr(0, end), "groups");
    if (!factor.ok()) return error("groups={}: write a number of token groups per sample, 8 or 2x4", text);
    config.moe.groups.push_back(*factor);
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return Ok{};
}

// Beside which linears adapters are: "attn", "mlp" or "attn+mlp".
Status set_lora_targets(T& config, std::string_view text) {
  config.lora.attention = text == "attn" || text == "attn+mlp" || text == "all";
  config.lora.mlp = text == "mlp" || text == "attn+mlp" || text == "all";
  if (!config.lora.attention && !config.lora.mlp) return error("lora_targets={}: write attn, mlp or attn+mlp", text);
  return Ok{};
}

constexpr TextField<T> kTransformerTexts[] = {
    {"lora_targets", set_lora_targets},
    {"positions", set_positions},
    {"activation", set_activation},
    {"norm", set_norm},
    {"dropout", set_dropout<T>},
    {"groups", set_groups},
    {"rotary_base",
     [](T& config, std::string_view text) -> Status {
       WEFT_TRY(config.rotary_base, parse_number("rotary_base", text));
       return config.rotary_base > 0 ? Status(Ok{}) : error("rotary_base={}: must be above 0", text);
     }},
    {"scale",
     [](T& config, std::string_view text) -> Status {
       WEFT_TRY(config.moe.scale, parse_number("scale", text));
       return Ok{};
     }},
    {"capacity_factor",
     [](T& config, std::string_view text) -> Status {
       WEFT_TRY(config.moe.capacity_factor, parse_number("capacity_factor", text));
       return Ok{};
     }},
    {"imbalance",
     [](T& config, std::string_view text) -> Status {
       WEFT_TRY(config.moe.imbalance, parse_number("imbalance", text));
       return Ok{};
     }},
    {"aux_loss",
     [](T& config, std::string_view text) -> Status {
       WEFT_TRY(config.moe.aux_loss, parse_number("aux_loss", text));
       return Ok{};
     }},
};

using V = VisionConfig;
constexpr IntegerField<V> kVisionIntegers[] = {
    {"image", 1, kMostSize, [](V& c, std::int64_t v) { c.image = v; }},
    {"channels", 1, kMostSize, [](V& c, std::int64_t v) { c.channels = v; }},
    {"classes", 1, kMostSize, [](V& c, std::int64_t v) { c.classes = v; }},
    {"aux", 0, 1, [](V& c, std::int64_t v) { c.auxiliary = v != 0; }},
    {"width", 1, 1 << 20, [](V& c, std::int64_t v) { c.width = v; }},
    {"base_width", 1, 1 << 16,
     [](V& c, std::int64_t v) {
       c.width = c.width * v / c.base;
       c.base = v;
     }},
};
constexpr TextField<V> kVisionTexts[] = {{"dropout", set_dropout<V>}};

using R = RecurrentConfig;
constexpr IntegerField<R> kRecurrentIntegers[] = {
    {"layers", 1, 1000, [](R& c, std::int64_t v) { c.layers = v; }},
    {"hidden", 1, kMostSize, [](R& c, std::int64_t v) { c.hidden = v; }},
    {"vocab", 1, kMostSize, [](R& c, std::int64_t v) { c.vocab = v; }},
    {"classes", 1, kMostSize, [](R& c, std::int64_t v) { c.classes = v; }},
};
constexpr TextField<R> kRecurrentTexts[] = {{"dropout", set_dropout<R>}};

using D = RecommenderConfig;
constexpr IntegerField<D> kRecommenderIntegers[] = {
    {"tables", 1, 10'000,
     [](D& c, std::int64_t v) {
       c.tables.resize(static_cast<std::size_t>(v), c.tables.empty() ? 1 : c.tables.back());
     }},
    {"rows", 1, kMostSize,
     [](D& c, std::int64_t v) {
       for (std::int64_t& rows : c.tables) rows = v;
     }},
    {"lookups", 1, kMostSize, [](D& c, std::int64_t v) { c.lookups = v; }},
};

Result<std::int64_t> parse_in_range(std::string_view name, std::string_view text, std::int64_t low, std::int64_t high) {
  const Result<std::int64_t> value = parse_integer(text, "value");
  if (!value.ok()) return error("{}={}: not a whole number", name, text);
  if (*value < low || *value > high) return error("{}={}: must be between {} and {}", name, text, low, high);
  return *value;
}

template <class Config>
Status apply(Config& config, std::span<const IntegerField<Config>> integers, std::span<const TextField<Config>> texts,
             bool has_seq, ModelOptions& options, std::string_view key, std::string_view value) {
  std::vector<std::string> names{"batch"};
  if (key == "batch") {
    WEFT_TRY(options.batch, parse_in_range(key, value, 1, 1LL << 32));
    return Ok{};
  }
  if (has_seq) {
    names.emplace_back("seq");
    if (key == "seq") {
      WEFT_TRY(options.seq, parse_in_range(key, value, 1, 1LL << 32));
      return Ok{};
    }
  }
  for (const IntegerField<Config>& field : integers) {
    names.emplace_back(field.name);
    if (field.name != key) continue;
    WEFT_TRY(const std::int64_t number, parse_in_range(key, value, field.low, field.high));
    field.set(config, number);
    return Ok{};
  }
  for (const TextField<Config>& field : texts) {
    names.emplace_back(field.name);
    if (field.name == key) return field.set(config, value);
  }
  const std::string suggestion = did_you_mean(key, names);
  if (!suggestion.empty()) return error("unknown override '{}'{}", key, suggestion);
  return error("unknown override '{}'; this model takes {}", key, fmt::join(names, ", "));
}

Status apply_one(ModelConfig& config, ModelOptions& options, std::string_view key, std::string_view value) {
  if (auto* transformer = std::get_if<TransformerConfig>(&config))
    return apply<T>(*transformer, kTransformerIntegers, kTransformerTexts, transformer->structure != Structure::Vision,
                    options, key, value);
  if (auto* vision = std::get_if<VisionConfig>(&config))
    return apply<V>(*vision, kVisionIntegers, kVisionTexts, false, options, key, value);
  if (auto* recurrent = std::get_if<RecurrentConfig>(&config))
    return apply<R>(*recurrent, kRecurrentIntegers, kRecurrentTexts, true, options, key, value);
  return apply<D>(std::get<RecommenderConfig>(config), kRecommenderIntegers, {}, false, options, key, value);
}

}  // namespace

Status apply_overrides(std::string_view overrides, ModelConfig& config, ModelOptions& options) {
  while (!overrides.empty()) {
    const std::size_t end = std::min(overrides.find(','), overrides.size());
    const std::string_view item = overrides.substr(0, end);
    overrides.remove_prefix(std::min(end + 1, overrides.size()));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size())
      return error("override '{}': write key=value", item);
    WEFT_TRY_OK(apply_one(config, options, item.substr(0, equals), item.substr(equals + 1)));
  }
  return Ok{};
}

}  // namespace weft
