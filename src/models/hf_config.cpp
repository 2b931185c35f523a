// Hugging Face config.json → TransformerConfig. One reader per model_type; fields and defaults as in
// `transformers`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/parse_json.h"
#include "base/suggest.h"
#include "models/zoo.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// Reads fields of one object. The first error sticks, so that readers stay lists of assignments.
class Fields {
 public:
  Fields(const Json& object, std::string prefix = "") : object_(object), prefix_(std::move(prefix)) {}

  // Absent and null are the same: transformers writes both for "the default".
  const Json* find(std::string_view name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  // The first of several names that is there: "n_layer|num_hidden_layers".
  std::pair<std::string_view, const Json*> find_any(std::string_view names) const {
    const std::string_view first = names.substr(0, names.find('|'));
    while (!names.empty()) {
      const std::string_view name = names.substr(0, names.find('|'));
      if (const Json* value = find(name)) return {name, value};
      names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
    return {first, nullptr};
  }

  // A size: at least 1.
  std::int64_t integer(std::string_view names) {
    const auto [name, value] = find_any(names);
    if (!value) fail(weft::error("field '{}{}' missing; add it", prefix_, name));
    if (!value) return 0;
    const std::int64_t size = to_integer(name, *value);
    if (size < 1) fail(weft::error("field '{}{}': {} is no size; it must be at least 1", prefix_, name, size));
    return size;
  }
  // The same with a default.
  std::int64_t size_or(std::string_view names, std::int64_t fallback) {
    return find_any(names).second ? integer(names) : fallback;
  }
  std::int64_t integer_or(std::string_view names, std::int64_t fallback) {
    const auto [name, value] = find_any(names);
    return value ? to_integer(name, *value) : fallback;
  }
  double number_or(std::string_view name, double fallback) {
    const Json* value = find(name);
    if (!value) return fallback;
    if (!value->is_number()) fail(weft::error("field '{}{}': not a number", prefix_, name));
    const double number = value->is_number() ? value->get<double>() : fallback;
    if (!std::isfinite(number) || std::abs(number) > 1e12)
      fail(weft::error("field '{}{}': out of range", prefix_, name));
    return number;
  }
  bool flag_or(std::string_view name, bool fallback) {
    const Json* value = find(name);
    if (!value) return fallback;
    if (!value->is_boolean()) fail(weft::error("field '{}{}': not true or false", prefix_, name));
    return value->is_boolean() ? value->get<bool>() : fallback;
  }
  std::string text_or(std::string_view names, std::string_view fallback) {
    const auto [name, value] = find_any(names);
    if (!value) return std::string(fallback);
    if (!value->is_string()) fail(weft::error("field '{}{}': not a text", prefix_, name));
    return value->is_string() ? value->get<std::string>() : std::string(fallback);
  }
  // A nested object, empty when absent.
  Fields nested(std::string_view name) {
    static const Json kEmpty = Json::object();
    const Json* value = find(name);
    if (value && !value->is_object()) fail(weft::error("field '{}{}': not an object", prefix_, name));
    return Fields(value && value->is_object() ? *value : kEmpty, prefix_ + std::string(name) + ".");
  }
  // Something the graph cannot express: better refused than silently wrong.
  void refuse(bool condition, std::string_view field, std::string_view why) {
    if (condition) fail(weft::error("field '{}{}': {}", prefix_, field, why));
  }
  void adopt(const Fields& other) {
    if (other.error_) fail(*other.error_);
  }

  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::int64_t to_integer(std::string_view name, const Json& value) {
    if (const auto* number = value.get_ptr<const Json::number_unsigned_t*>()) {
      if (*number <= (1ULL << 62)) return static_cast<std::int64_t>(*number);
    } else if (const auto* negative = value.get_ptr<const Json::number_integer_t*>()) {
      return *negative;
    }
    fail(weft::error("field '{}{}': {} is not a whole number in range", prefix_, name,
                     value.is_number() ? value.dump() : std::string(value.type_name())));
    return 0;
  }

  const Json& object_;
  std::string prefix_;
  std::optional<Error> error_;
};

Activation activation_named(Fields& fields, std::string_view names, std::string_view fallback, bool gated) {
  const std::string name = fields.text_or(names, fallback);
  if (name == "silu" || name == "swish") {
    if (!gated) fields.fail(error("field '{}': silu without a gate is not supported", names));
    return Activation::SwiGlu;
  }
  if (name == "gelu" || name == "gelu_python") return gated ? Activation::GeGlu : Activation::Gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast" || name == "gelu_tanh")
    return gated ? Activation::GeGluTanh : Activation::GeluTanh;
  if (!gated && name == "relu") return Activation::Relu;
  if (!gated && name == "relu2") return Activation::Relu2;
  fields.fail(
      error("field '{}': activation '{}' is not supported; known: silu, gelu, gelu_new, gelu_pytorch_tanh, "
            "relu, relu2",
            names.substr(0, names.find('|')), name));
  return Activation::Gelu;
}

// GPT-2's generation: LayerNorm and biases everywhere, tied head.
TransformerConfig biased() {
  TransformerConfig config;
  config.norm = Norm::Layer;
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  config.tied = true;
  return config;
}

// The share of a head that is rotated; all of it where the field is at fault.
double rotary_share(Fields& f, std::string_view field, double otherwise) {
  const double share = f.number_or(field, otherwise);
  const bool sound = share > 0 && share <= 1;
  f.refuse(!sound, field, "must be above 0 and at most 1");
  return sound ? share : 1;
}

// The sizes under the names most architectures share.
void read_shape(Fields& f, TransformerConfig& c) {
  c.layers = f.integer("num_hidden_layers");
  c.hidden = f.integer("hidden_size");
  c.heads = f.integer("num_attention_heads");
  c.ffn = f.integer("intermediate_size");
  c.vocab = f.integer("vocab_size");
  c.context = f.integer("max_position_embeddings");
}

TransformerConfig read_gpt2(Fields& f) {
  TransformerConfig c = biased();
  c.layers = f.integer("n_layer|num_hidden_layers");
  c.hidden = f.integer("n_embd|hidden_size");
  c.heads = f.integer("n_head|num_attention_heads");
  c.vocab = f.integer("vocab_size");
  c.context = f.integer("n_positions|n_ctx|max_position_embeddings");
  c.ffn = f.integer_or("n_inner", 0);
  c.positions = Positions::Learned;
  c.activation = activation_named(f, "activation_function", "gelu_new", false);
  c.dropout = f.number_or("resid_pdrop", 0.1);
  c.tied = f.flag_or("tie_word_embeddings", true);
  return c;
}

TransformerConfig read_gpt_neox(Fields& f) {
  TransformerConfig c = biased();
  read_shape(f, c);
  c.positions = Positions::Rotary;
  c.rotary_base = f.number_or("rotary_emb_base", 10000);
  const double share = rotary_share(f, "rotary_pct", 0.25);
  if (c.heads > 0) c.rotary_dim = static_cast<std::int64_t>(static_cast<double>(c.hidden / c.heads) * share);
  c.activation = activation_named(f, "hidden_act", "gelu", false);
  c.parallel_residual = f.flag_or("use_parallel_residual", true);
  c.qkv_bias = c.out_bias = f.flag_or("attention_bias", true);
  c.dropout = f.number_or("hidden_dropout", 0);
  c.tied = f.flag_or("tie_word_embeddings", false);
  return c;
}

TransformerConfig read_opt(Fields& f) {
  TransformerConfig c = biased();
  c.layers = f.integer("num_hidden_layers");
  c.hidden = f.integer("hidden_size");
  c.heads = f.integer("num_attention_heads");
  c.ffn = f.integer("ffn_dim");
  c.vocab = f.integer("vocab_size");
  c.context = f.integer("max_position_embeddings");
  c.position_rows = c.context > 0 && c.context < (1LL << 40) ? c.context + 2 : 0;  // OPT's table starts at position 2
  c.positions = Positions::Learned;
  c.activation = activation_named(f, "activation_function", "relu", false);
  c.dropout = f.number_or("dropout", 0.1);
  c.tied = f.flag_or("tie_word_embeddings", true);
  f.refuse(f.integer_or("word_embed_proj_dim", c.hidden) != c.hidden, "word_embed_proj_dim", "must equal hidden_size");
  f.refuse(!f.flag_or("do_layer_norm_before", true), "do_layer_norm_before", "post-norm decoders are not supported");
  return c;
}

TransformerConfig read_bloom(Fields& f) {
  TransformerConfig c = biased();
  c.layers = f.integer("n_layer|num_hidden_layers");
  c.hidden = f.integer("hidden_size|n_embed");
  c.heads = f.integer("n_head|num_attention_heads");
  c.vocab = f.integer("vocab_size");
  c.context = f.integer_or("seq_length", 2048);
  c.positions = Positions::Alibi;
  c.embedding_norm = true;
  c.activation = Activation::GeluTanh;
  c.dropout = f.number_or("hidden_dropout", 0);
  return c;
}

TransformerConfig read_mpt(Fields& f) {
  TransformerConfig c = biased();
  c.layers = f.integer("n_layers");
  c.hidden = f.integer("d_model");
  c.heads = f.integer("n_heads");
  c.vocab = f.integer("vocab_size");
  c.context = f.integer("max_seq_len");
  const double expansion = f.number_or("expansion_ratio", 4);
  f.refuse(!(expansion > 0 && expansion <= 1000), "expansion_ratio", "must be above 0 and at most 1000");
  if (expansion > 0 && expansion <= 1000 && c.hidden > 0 && c.hidden < (1LL << 40))
    c.ffn = static_cast<std::int64_t>(std::llround(expansion * static_cast<double>(c.hidden)));
  const bool bias = !f.flag_or("no_bias", true);
  c.qkv_bias = c.out_bias = c.mlp_bias = bias;
  c.norm = bias ? Norm::Layer : Norm::LayerNoBias;
  Fields attention = f.nested("attn_config");
  const bool alibi = attention.flag_or("alibi", true);
  c.positions = alibi ? Positions::Alibi : f.flag_or("learned_pos_emb", true) ? Positions::Learned : Positions::None;
  attention.refuse(attention.flag_or("qk_ln", false), "qk_ln", "not supported");
  c.kv_heads = attention.text_or("attn_type", "") == "multiquery_attention" ? 1 : attention.integer_or("kv_n_heads", 0);
  f.adopt(attention);
  c.activation = Activation::Gelu;
  c.dropout = f.number_or("resid_pdrop", 0);
  return c;
}

// The language model inside a multimodal one; images are not modelled.
TransformerConfig read_text(Fields& f, TransformerConfig (*read)(Fields&)) {
  Fields text = f.nested("text_config");
  TransformerConfig c = read(text);
  c.left_out_images = f.find("vision_config") != nullptr;
  f.adopt(text);
  return c;
}

// What Llama and its descendants share.
TransformerConfig read_llama(Fields& f) {
  TransformerConfig c;
  read_shape(f, c);
  c.kv_heads = f.size_or("num_key_value_heads", c.heads);
  c.head_dim = f.size_or("head_dim", 0);
  c.activation = activation_named(f, "hidden_act", "silu", true);
  c.rotary_base = f.number_or("rope_theta", 10000);
  c.tied = f.flag_or("tie_word_embeddings", false);
  c.qkv_bias = c.out_bias = f.flag_or("attention_bias", false);
  c.mlp_bias = f.flag_or("mlp_bias", false);
  // An explicit head size of hidden / heads is stored as the default, so that it follows an override of `hidden`.
  if (c.heads > 0 && c.head_dim * c.heads == c.hidden) c.head_dim = 0;
  return c;
}

TransformerConfig read_mistral(Fields& f) {
  TransformerConfig c = read_llama(f);
  c.window = f.integer_or("sliding_window", 0);
  return c;
}

TransformerConfig read_mixtral(Fields& f) {
  TransformerConfig c = read_mistral(f);
  c.moe.experts = f.integer("num_local_experts");
  c.moe.top_k = f.integer("num_experts_per_tok");
  if (f.flag_or("output_router_logits", false)) c.moe.aux_loss = f.number_or("router_aux_loss_coef", 0.001);
  return c;
}

TransformerConfig read_qwen2(Fields& f) {
  TransformerConfig c = read_llama(f);
  c.qkv_bias = true;
  c.out_bias = false;
  if (f.flag_or("use_sliding_window", false)) c.window = f.integer_or("sliding_window", 0);
  return c;
}

TransformerConfig read_qwen3(Fields& f) {
  TransformerConfig c = read_llama(f);
  if (!f.find("head_dim")) c.head_dim = 128;
  c.qk_norm = true;
  if (f.flag_or("use_sliding_window", false)) c.window = f.integer_or("sliding_window", 0);
  return c;
}

void read_qwen_experts(Fields& f, TransformerConfig& c) {
  c.moe.experts = f.integer("num_experts");
  c.moe.top_k = f.integer("num_experts_per_tok");
  c.moe.expert_ffn = f.integer("moe_intermediate_size");
  c.moe.normalize = f.flag_or("norm_topk_prob", false);
  c.moe.every = f.size_or("decoder_sparse_step", 1);
  if (f.flag_or("output_router_logits", false)) c.moe.aux_loss = f.number_or("router_aux_loss_coef", 0.001);
  const Json* dense = f.find("mlp_only_layers");
  f.refuse(dense && !dense->empty(), "mlp_only_layers", "dense layers in between are not supported");
}

TransformerConfig read_qwen2_moe(Fields& f) {
  TransformerConfig c = read_qwen2(f);
  read_qwen_experts(f, c);
  c.moe.shared_ffn = f.integer("shared_expert_intermediate_size");
  c.moe.shared_gate = true;
  return c;
}

TransformerConfig read_qwen3_moe(Fields& f) {
  TransformerConfig c = read_qwen3(f);
  read_qwen_experts(f, c);
  return c;
}

// What the generations of Gemma share, once the hidden size is read.
void read_gemma(Fields& f, TransformerConfig& c) {
  c.activation = activation_named(f, "hidden_activation|hidden_act", "gelu_pytorch_tanh", true);
  c.post_norms = true;
  c.tied = f.flag_or("tie_word_embeddings", true);
  c.embedding_scale = std::sqrt(static_cast<double>(std::max<std::int64_t>(1, c.hidden)));
  const double scalar = f.number_or("query_pre_attn_scalar", 256);
  f.refuse(!(scalar > 0), "query_pre_attn_scalar", "must be positive");
  if (scalar > 0) c.attention_scale = 1 / std::sqrt(scalar);
  c.attention_softcap = f.number_or("attn_logit_softcapping", 0);
  c.logit_softcap = f.number_or("final_logit_softcapping", 0);
  c.window = f.integer_or("sliding_window", 4096);
}

TransformerConfig read_gemma2(Fields& f) {
  TransformerConfig c = read_llama(f);
  if (!f.find("head_dim")) c.head_dim = 256;
  read_gemma(f, c);
  c.full_every = 2;
  return c;
}

TransformerConfig read_deepseek(Fields& f, bool v3) {
  TransformerConfig c = read_llama(f);
  c.head_dim = 0;
  c.mla = {.kv_lora = f.integer("kv_lora_rank"),
           .q_lora = f.integer_or("q_lora_rank", 0),
           .rope = f.integer("qk_rope_head_dim"),
           .nope = f.integer("qk_nope_head_dim"),
           .value = f.integer("v_head_dim")};
  f.refuse(c.mla.kv_lora <= 0, "kv_lora_rank", "must be positive");
  MoeConfig& moe = c.moe;
  moe.experts = f.integer("n_routed_experts");
  moe.top_k = f.integer("num_experts_per_tok");
  moe.expert_ffn = f.integer("moe_intermediate_size");
  const std::int64_t shared = f.integer_or("n_shared_experts", 0);
  f.refuse(shared < 0 || shared > 10'000 || moe.expert_ffn < 0 || moe.expert_ffn > (1LL << 40), "n_shared_experts",
           "out of range");
  if (!f.error()) moe.shared_ffn = shared * moe.expert_ffn;
  moe.first_dense = f.integer_or("first_k_dense_replace", 0);
  moe.every = f.size_or("moe_layer_freq", 1);
  moe.normalize = f.flag_or("norm_topk_prob", v3);
  moe.scale = f.number_or("routed_scaling_factor", 1);
  moe.sigmoid_score = f.text_or("scoring_func", v3 ? "sigmoid" : "softmax") == "sigmoid";
  moe.expert_groups = f.integer_or("n_group", 1);
  moe.top_groups = moe.expert_groups > 1 ? f.integer_or("topk_group", 0) : 0;
  moe.correction_bias = f.text_or("topk_method", v3 ? "noaux_tc" : "greedy") == "noaux_tc";
  // transformers leaves these modules out too: they are built where a user asks for them (mtp=1).
  c.left_out_mtp = f.integer_or("num_nextn_predict_layers", 0);
  f.refuse(c.left_out_mtp < 0 || c.left_out_mtp > 16, "num_nextn_predict_layers", "must be between 0 and 16");
  return c;
}
TransformerConfig read_deepseek_v2(Fields& f) { return read_deepseek(f, false); }
TransformerConfig read_deepseek_v3(Fields& f) { return read_deepseek(f, true); }

TransformerConfig read_phi3(Fields& f) {
  TransformerConfig c = read_llama(f);
  c.window = f.integer_or("sliding_window", 0);
  const double share = rotary_share(f, "partial_rotary_factor", 1);
  if (!f.error() && share < 1) c.rotary_dim = static_cast<std::int64_t>(static_cast<double>(c.head_width()) * share);
  return c;
}

TransformerConfig read_olmo2(Fields& f) {
  TransformerConfig c = read_llama(f);
  c.pre_norms = false;
  c.post_norms = true;
  c.qk_norm = c.qk_norm_whole = true;
  return c;
}

// Published files leave out what has the default of transformers' Gemma3TextConfig.
TransformerConfig read_gemma3_text(Fields& f) {
  TransformerConfig c;
  c.layers = f.size_or("num_hidden_layers", 26);
  c.hidden = f.size_or("hidden_size", 2304);
  c.heads = f.size_or("num_attention_heads", 8);
  c.kv_heads = f.size_or("num_key_value_heads", 4);
  c.head_dim = f.size_or("head_dim", 256);
  c.ffn = f.size_or("intermediate_size", 9216);
  c.vocab = f.size_or("vocab_size", 262'208);
  c.context = f.size_or("max_position_embeddings", 131'072);
  read_gemma(f, c);
  c.qk_norm = true;
  c.rotary_base = f.number_or("rope_theta", 1'000'000);
  c.full_every = f.integer_or("sliding_window_pattern|_sliding_window_pattern", 6);
  f.refuse(c.full_every < 0 || c.full_every > 10'000, "sliding_window_pattern", "must be between 0 and 10000");
  return c;
}
TransformerConfig read_gemma3(Fields& f) { return read_text(f, read_gemma3_text); }

// Biases of experts and the sinks of attention, 0.03 % of the parameters, are left out.
TransformerConfig read_gpt_oss(Fields& f) {
  TransformerConfig c = read_llama(f);
  c.qkv_bias = c.out_bias = f.flag_or("attention_bias", true);
  c.rotary_base = f.number_or("rope_theta", 150'000);
  c.window = f.integer_or("sliding_window", 128);
  c.full_every = 2;
  c.moe.experts = f.integer("num_local_experts");
  c.moe.top_k = f.size_or("num_experts_per_tok|experts_per_token", 4);
  c.moe.expert_ffn = c.ffn;
  c.moe.correction_bias = true;
  return c;
}

TransformerConfig read_llama4_text(Fields& f) {
  TransformerConfig c = read_llama(f);
  c.moe.expert_ffn = c.ffn;
  c.moe.shared_ffn = c.ffn;
  c.ffn = f.size_or("intermediate_size_mlp", c.ffn);
  c.moe.experts = f.integer("num_local_experts");
  c.moe.top_k = f.size_or("num_experts_per_tok", 1);
  c.moe.every = f.size_or("interleave_moe_layer_step", 1);
  c.moe.sigmoid_score = true;
  c.moe.normalize = false;
  c.moe.weigh_rows = false;
  // Attention within chunks, as a window of that size.
  c.window = f.integer_or("attention_chunk_size", 0);
  c.full_every = c.unrotated_every = f.integer_or("no_rope_layer_interval", 4);
  f.refuse(c.full_every < 0 || c.full_every > 10'000, "no_rope_layer_interval", "must be between 0 and 10000");
  return c;
}
TransformerConfig read_llama4(Fields& f) { return read_text(f, read_llama4_text); }

TransformerConfig read_falcon(Fields& f) {
  TransformerConfig c = biased();
  c.layers = f.integer("num_hidden_layers|n_layer");
  c.hidden = f.integer("hidden_size");
  c.heads = f.integer("num_attention_heads|n_head");
  c.vocab = f.integer("vocab_size");
  c.context = f.size_or("max_position_embeddings", 2048);
  c.ffn = f.integer_or("ffn_hidden_size", 0);
  c.positions = f.flag_or("alibi", false) ? Positions::Alibi : Positions::Rotary;
  c.rotary_base = f.number_or("rope_theta", 10000);
  c.activation = activation_named(f, "activation", "gelu", false);
  c.qkv_bias = c.out_bias = c.mlp_bias = f.flag_or("bias", false);
  // Falcon-40B and 180B group queries and norm attention and MLP apart; 7B has one key head and one norm.
  const bool grouped = f.flag_or("new_decoder_architecture", false);
  c.kv_heads = grouped ? f.size_or("num_kv_heads", c.heads) : f.flag_or("multi_query", true) ? 1 : c.heads;
  c.parallel_residual = grouped || f.flag_or("parallel_attn", true);
  c.shared_norm = c.parallel_residual && !grouped;
  c.dropout = f.number_or("hidden_dropout", 0);
  c.tied = f.flag_or("tie_word_embeddings", true);
  return c;
}

TransformerConfig read_starcoder2(Fields& f) {
  TransformerConfig c = biased();
  read_shape(f, c);
  c.kv_heads = f.size_or("num_key_value_heads", 2);
  c.positions = Positions::Rotary;
  c.rotary_base = f.number_or("rope_theta", 10000);
  c.activation = activation_named(f, "hidden_act", "gelu_pytorch_tanh", false);
  c.qkv_bias = c.out_bias = c.mlp_bias = f.flag_or("use_bias", true);
  c.norm = f.text_or("norm_type", "layer_norm") == "layer_norm" ? Norm::Layer : Norm::Rms;
  c.window = f.integer_or("sliding_window", 0);
  c.dropout = f.number_or("residual_dropout", 0);
  c.tied = f.flag_or("tie_word_embeddings", true);
  return c;
}

TransformerConfig read_nemotron(Fields& f) {
  TransformerConfig c;
  read_shape(f, c);
  c.kv_heads = f.size_or("num_key_value_heads", c.heads);
  c.head_dim = f.size_or("head_dim", 0);
  if (c.heads > 0 && c.head_dim * c.heads == c.hidden) c.head_dim = 0;
  c.norm = Norm::Layer;
  c.activation = activation_named(f, "hidden_act", "relu2", false);
  c.rotary_base = f.number_or("rope_theta", 10000);
  const double share = rotary_share(f, "partial_rotary_factor", 0.5);
  if (!f.error()) c.rotary_dim = static_cast<std::int64_t>(static_cast<double>(c.head_width()) * share);
  c.qkv_bias = c.out_bias = f.flag_or("attention_bias", false);
  c.mlp_bias = f.flag_or("mlp_bias", false);
  c.tied = f.flag_or("tie_word_embeddings", false);
  return c;
}

TransformerConfig read_grok(Fields& f) {
  TransformerConfig c = read_llama(f);
  c.activation = Activation::GeGluTanh;
  c.post_norms = true;
  c.tied = f.flag_or("tie_word_embeddings", true);
  c.embedding_scale =
      f.number_or("embedding_multiplier_scale", std::sqrt(static_cast<double>(std::max<std::int64_t>(1, c.hidden))));
  c.attention_softcap = f.number_or("max_attn_value", 30);
  c.moe.experts = f.integer("num_experts");
  c.moe.top_k = f.integer("num_experts_per_tok");
  c.moe.normalize = false;
  return c;
}

TransformerConfig read_bert(Fields& f) {
  TransformerConfig c = biased();
  c.structure = Structure::Encoder;
  read_shape(f, c);
  c.token_types = f.integer_or("type_vocab_size", 2);
  c.positions = Positions::Learned;
  c.activation = activation_named(f, "hidden_act", "gelu", false);
  c.dropout = f.number_or("hidden_dropout_prob", 0.1);
  c.head_bias = true;
  return c;
}

TransformerConfig read_t5(Fields& f) {
  TransformerConfig c;
  c.structure = Structure::EncoderDecoder;
  c.layers = f.integer("num_layers");
  c.decoder_layers = f.integer_or("num_decoder_layers", c.layers);
  if (c.decoder_layers == c.layers) c.decoder_layers = 0;
  c.hidden = f.integer("d_model");
  c.heads = f.integer("num_heads");
  c.head_dim = f.integer("d_kv");
  c.ffn = f.integer("d_ff");
  c.vocab = f.integer("vocab_size");
  c.context = f.integer_or("n_positions", 512);
  const std::string projection = f.text_or("feed_forward_proj", "relu");
  c.activation = projection == "gated-gelu" ? Activation::GeGluTanh : Activation::Relu;
  f.refuse(projection != "gated-gelu" && projection != "relu", "feed_forward_proj", "must be relu or gated-gelu");
  c.positions = Positions::Relative;
  c.relative_buckets = f.integer_or("relative_attention_num_buckets", 32);
  c.attention_scale = 1;
  c.fused_attention = false;
  c.dropout = f.number_or("dropout_rate", 0.1);
  c.tied = f.flag_or("tie_word_embeddings", true);
  return c;
}

TransformerConfig read_vit(Fields& f) {
  TransformerConfig c = biased();
  c.structure = Structure::Vision;
  c.tied = false;
  c.layers = f.integer("num_hidden_layers");
  c.hidden = f.integer("hidden_size");
  c.heads = f.integer("num_attention_heads");
  c.ffn = f.integer("intermediate_size");
  c.image = f.integer("image_size");
  c.patch = f.integer("patch_size");
  c.channels = f.integer_or("num_channels", 3);
  const Json* labels = f.find("id2label");
  c.classes =
      labels && labels->is_object() ? static_cast<std::int64_t>(labels->size()) : f.integer_or("num_labels", 1000);
  c.positions = Positions::Learned;
  c.activation = activation_named(f, "hidden_act", "gelu", false);
  c.dropout = f.number_or("hidden_dropout_prob", 0);
  c.qkv_bias = f.flag_or("qkv_bias", true);
  return c;
}

struct Reader {
  std::string_view model_type;
  TransformerConfig (*read)(Fields&);
};
constexpr Reader kReaders[] = {
    {"gpt2", read_gpt2},
    {"gpt_neox", read_gpt_neox},
    {"opt", read_opt},
    {"bloom", read_bloom},
    {"mpt", read_mpt},
    {"llama", read_llama},
    {"mistral", read_mistral},
    {"mixtral", read_mixtral},
    {"qwen2", read_qwen2},
    {"qwen2_moe", read_qwen2_moe},
    {"qwen3", read_qwen3},
    {"qwen3_moe", read_qwen3_moe},
    {"gemma2", read_gemma2},
    {"gemma3", read_gemma3},
    {"gemma3_text", read_gemma3_text},
    {"phi3", read_phi3},
    {"olmo2", read_olmo2},
    {"gpt_oss", read_gpt_oss},
    {"llama4", read_llama4},
    {"llama4_text", read_llama4_text},
    {"falcon", read_falcon},
    {"starcoder2", read_starcoder2},
    {"kimi_k2", read_deepseek_v3},
    {"deepseek_v2", read_deepseek_v2},
    {"deepseek_v3", read_deepseek_v3},
    {"nemotron", read_nemotron},
    {"grok-1", read_grok},
    {"bert", read_bert},
    {"t5", read_t5},
    {"vit", read_vit},
};

}  // namespace

Result<TransformerConfig> import_hf_config(std::string_view text, std::string_view file, std::string_view as) {
  WEFT_TRY(const Json json, parse_json(text, file));
  if (!json.is_object()) return error("{}: not a JSON object; a Hugging Face config.json is one", file);
  Fields fields(json);
  const std::string own = fields.text_or("model_type", "");
  if (fields.error()) return fields.error()->at(file);
  const std::string type = as.empty() ? own : std::string(as);
  if (type.empty())
    return error("{}: field 'model_type' missing; a model like Llama is read with --as llama ({}:as=llama)", file,
                 file);
  std::vector<std::string> known;
  for (const Reader& reader : kReaders) {
    known.emplace_back(reader.model_type);
    if (reader.model_type != type) continue;
    const TransformerConfig config = reader.read(fields);
    const std::string_view experts = fields.find_any("num_local_experts|num_experts|n_routed_experts").first;
    fields.refuse(config.moe.experts == 0 && fields.size_or(experts, 0) > 0, experts,
                  fmt::format("{} has no experts; read it as one that has, --as mixtral or qwen3_moe", type));
    if (fields.error()) return fields.error()->at(as.empty() ? std::string(file) : fmt::format("{} as {}", file, as));
    if (Status fits = check(config); !fits.ok()) return fits.error().at(file);
    return config;
  }
  if (!as.empty()) return error("--as {}: no model_type that is read{}", as.substr(0, 40), did_you_mean(as, known));
  const std::string suggestion = did_you_mean(type, known);
  return error("{}: model_type '{}' is not supported; a model like Llama is read with --as llama ({}:as=llama){}", file,
               type, file, suggestion.empty() ? fmt::format("; known: {}", fmt::join(known, ", ")) : suggestion);
}

}  // namespace weft
