#include "models/model_words.h"

#include <fmt/format.h>

#include <array>

namespace weft {
namespace {

std::string flag(bool value) { return value ? "1" : "0"; }
std::string number(double value) { return fmt::format("{}", value); }

std::string_view word(Positions positions) {
  constexpr std::array<std::string_view, 5> kWords = {"learned", "rotary", "alibi", "relative", "none"};
  return kWords[static_cast<std::size_t>(positions)];
}
std::string_view word(Activation activation) {
  constexpr std::array<std::string_view, 7> kWords = {"gelu",   "gelu_tanh", "relu",      "relu2",
                                                      "swiglu", "geglu",     "geglu_tanh"};
  return kWords[static_cast<std::size_t>(activation)];
}
std::string_view word(Norm norm) {
  constexpr std::array<std::string_view, 3> kWords = {"layer", "layer_no_bias", "rms"};
  return kWords[static_cast<std::size_t>(norm)];
}

// The value of a key of overrides.cpp in a configuration. Order matters: `heads` also changes `kv_heads`, `context` the
// learned rows.
struct Key {
  std::string_view name;
  std::string (*value)(const TransformerConfig&);
};
using C = TransformerConfig;
constexpr Key kKeys[] = {
    {"layers", [](const C& c) { return fmt::to_string(c.layers); }},
    {"hidden", [](const C& c) { return fmt::to_string(c.hidden); }},
    {"heads", [](const C& c) { return fmt::to_string(c.heads); }},
    {"kv_heads", [](const C& c) { return fmt::to_string(c.kv_heads); }},
    {"head_dim", [](const C& c) { return fmt::to_string(c.head_dim); }},
    {"ffn", [](const C& c) { return fmt::to_string(c.ffn); }},
    {"vocab", [](const C& c) { return fmt::to_string(c.vocab); }},
    {"context", [](const C& c) { return fmt::to_string(c.context); }},
    {"norm", [](const C& c) { return std::string(word(c.norm)); }},
    {"activation", [](const C& c) { return std::string(word(c.activation)); }},
    {"positions", [](const C& c) { return std::string(word(c.positions)); }},
    {"rotary_dim", [](const C& c) { return fmt::to_string(c.rotary_dim); }},
    {"rotary_base", [](const C& c) { return number(c.rotary_base); }},
    {"qkv_bias", [](const C& c) { return flag(c.qkv_bias); }},
    {"out_bias", [](const C& c) { return flag(c.out_bias); }},
    {"mlp_bias", [](const C& c) { return flag(c.mlp_bias); }},
    {"tied", [](const C& c) { return flag(c.tied); }},
    {"qk_norm", [](const C& c) { return flag(c.qk_norm); }},
    {"parallel_residual", [](const C& c) { return flag(c.parallel_residual); }},
    {"window", [](const C& c) { return fmt::to_string(c.window); }},
    {"dropout", [](const C& c) { return number(c.dropout); }},
    {"experts", [](const C& c) { return fmt::to_string(c.moe.experts); }},
    {"top_k", [](const C& c) { return fmt::to_string(c.moe.top_k); }},
    {"expert_ffn", [](const C& c) { return fmt::to_string(c.moe.expert_ffn); }},
    {"shared_ffn", [](const C& c) { return fmt::to_string(c.moe.shared_ffn); }},
    {"shared_gate", [](const C& c) { return flag(c.moe.shared_gate); }},
    {"first_dense", [](const C& c) { return fmt::to_string(c.moe.first_dense); }},
    {"moe_every", [](const C& c) { return fmt::to_string(c.moe.every); }},
    {"capacity_factor", [](const C& c) { return number(c.moe.capacity_factor); }},
    {"imbalance", [](const C& c) { return number(c.moe.imbalance); }},
    {"sigmoid_score", [](const C& c) { return flag(c.moe.sigmoid_score); }},
    {"expert_groups", [](const C& c) { return fmt::to_string(c.moe.expert_groups); }},
    {"top_groups", [](const C& c) { return fmt::to_string(c.moe.top_groups); }},
    {"weigh_rows", [](const C& c) { return flag(c.moe.weigh_rows); }},
    {"correction_bias", [](const C& c) { return flag(c.moe.correction_bias); }},
    {"normalize", [](const C& c) { return flag(c.moe.normalize); }},
    {"scale", [](const C& c) { return number(c.moe.scale); }},
    {"aux_loss", [](const C& c) { return number(c.moe.aux_loss); }},
    {"kv_lora", [](const C& c) { return fmt::to_string(c.mla.kv_lora); }},
    {"q_lora", [](const C& c) { return fmt::to_string(c.mla.q_lora); }},
    {"rope", [](const C& c) { return fmt::to_string(c.mla.rope); }},
    {"nope", [](const C& c) { return fmt::to_string(c.mla.nope); }},
    {"value", [](const C& c) { return fmt::to_string(c.mla.value); }},
};

// The overrides that turn one configuration into the other, in kKeys' order; none where they do not suffice.
std::optional<std::vector<std::string>> overrides_between(const TransformerConfig& from, const TransformerConfig& to) {
  ModelConfig current = from;
  ModelOptions ignored;
  std::vector<std::string> items;
  for (const Key& key : kKeys) {
    const std::string wanted = key.value(to);
    if (key.value(canonical(std::get<TransformerConfig>(current))) == wanted) continue;
    std::string item = fmt::format("{}={}", key.name, wanted);
    if (!apply_overrides(item, current, ignored).ok()) return {};
    items.push_back(std::move(item));
  }
  if (canonical(std::get<TransformerConfig>(current)) != to) return {};
  return items;
}

}  // namespace

TransformerConfig canonical(TransformerConfig config) {
  config.kv_heads = config.key_heads();
  config.head_dim = config.head_width();
  config.ffn = config.ffn_width();
  if (config.positions == Positions::Learned) {
    if (config.position_rows == 0) config.position_rows = config.context;
  } else {
    config.position_rows = 0;
  }
  if (config.positions == Positions::Rotary) {
    if (config.rotary_dim == 0) config.rotary_dim = config.head_dim;
    // A part of each head of latent attention is rotated, of a size of its own.
    if (config.mla.kv_lora > 0) config.rotary_dim = 0;
  } else {
    config.rotary_dim = 0;
    config.rotary_base = TransformerConfig().rotary_base;
  }
  if (config.mla.kv_lora > 0) config.head_dim = 0;
  if (config.window == 0) config.full_every = 0;
  if (config.moe.experts == 0) config.moe = {};
  if (config.moe.experts > 0 && config.moe.expert_ffn == 0) config.moe.expert_ffn = config.ffn;
  return config;
}

std::optional<std::string> words_of(const TransformerConfig& config) {
  const TransformerConfig wanted = canonical(config);
  std::optional<std::string> best;
  std::size_t fewest = 0;
  for (const ZooEntry& entry : zoo()) {
    const auto* known = std::get_if<TransformerConfig>(&entry.config);
    if (known == nullptr || known->structure != wanted.structure) continue;
    const auto items = overrides_between(*known, wanted);
    if (!items || (best && items->size() >= fewest)) continue;
    fewest = items->size();
    best = items->empty() ? entry.name : fmt::format("{}:{}", entry.name, fmt::join(*items, ","));
  }
  return best;
}

}  // namespace weft
