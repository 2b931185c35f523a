#include <fmt/format.h>

#include <cmath>

#include "base/units.h"
#include "export/megatron.h"
#include "models/model_words.h"

namespace weft {
namespace {

std::string number(double value) { return fmt::format("{}", value); }

// Megatron-LM keeps the base of rotary embeddings as a whole number.
bool is_whole(double value) { return value == std::floor(value) && value > 0 && value < 1e15; }

// A list of layers in Python's notation: `[1,0]`, `(…)`, sums and products with whole numbers.
class PatternReader {
 public:
  PatternReader(std::string_view text, std::size_t most) : text_(text), most_(most) {}

  Result<std::vector<int>> run() {
    WEFT_TRY(std::vector<int> pattern, sum(0));
    if (at_ != text_.size()) return bad();
    return pattern;
  }

 private:
  Error bad() const { return error("'{}': write a list such as ([0]*2+[1])*8", text_.substr(0, 60)); }
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  Result<std::int64_t> integer() {
    std::int64_t value = 0;
    if (peek() < '0' || peek() > '9') return bad();
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = 10 * value + (text_[at_] - '0');
      if (value > 1'000'000) return bad();
    }
    return value;
  }
  Result<std::vector<int>> sum(int depth) {
    WEFT_TRY(std::vector<int> all, product(depth));
    while (peek() == '+') {
      ++at_;
      WEFT_TRY(const std::vector<int> more, product(depth));
      all.insert(all.end(), more.begin(), more.end());
      if (all.size() > most_) return bad();
    }
    return all;
  }
  Result<std::vector<int>> product(int depth) {
    WEFT_TRY(std::vector<int> list, term(depth));
    while (peek() == '*') {
      ++at_;
      WEFT_TRY(const std::int64_t times, integer());
      if (list.size() * static_cast<std::size_t>(times) > most_) return bad();
      std::vector<int> repeated;
      for (std::int64_t i = 0; i < times; ++i) repeated.insert(repeated.end(), list.begin(), list.end());
      list = std::move(repeated);
    }
    return list;
  }
  Result<std::vector<int>> term(int depth) {
    if (depth > 50) return bad();
    if (peek() == '(') {
      ++at_;
      WEFT_TRY(std::vector<int> inner, sum(depth + 1));
      if (peek() != ')') return bad();
      ++at_;
      return inner;
    }
    if (peek() != '[') return bad();
    ++at_;
    std::vector<int> list;
    while (peek() != ']') {
      WEFT_TRY(const std::int64_t value, integer());
      if (value > 1 || list.size() > most_) return bad();
      list.push_back(static_cast<int>(value));
      if (peek() == ',')
        ++at_;
      else if (peek() != ']')
        return bad();
    }
    ++at_;
    return list;
  }

  std::string_view text_;
  std::size_t most_, at_ = 0;
};

std::vector<int> moe_pattern(const TransformerConfig& config) {
  std::vector<int> pattern;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) pattern.push_back(config.is_moe_layer(layer) ? 1 : 0);
  return pattern;
}

Status write_experts(const TransformerConfig& config, Arguments& into) {
  const MoeConfig& moe = config.moe;
  if (moe.experts == 0) return Ok{};
  if (moe.imbalance != 1) return error("experts of unequal load (imbalance): tokens choose them, no argument does");
  if (moe.weigh_rows) return error("weights that multiply the experts' activations (weigh_rows)");
  if (moe.group_count() != 1) return error("token groups of the model's own (groups)");
  if (moe.sigmoid_score && !moe.normalize) return error("sigmoid scores that are not scaled to sum to one");
  if (moe.expert_groups > 1 && moe.top_groups == 0) return error("groups of experts without a number of best groups");
  if (moe.correction_bias && !moe.sigmoid_score) return error("a bias per expert with softmax scores");
  into.add("--num-experts", moe.experts);
  const std::vector<int> pattern = moe_pattern(config);
  if (std::find(pattern.begin(), pattern.end(), 0) != pattern.end())
    into.add("--moe-layer-freq", write_layer_pattern(pattern));
  into.add("--moe-ffn-hidden-size", moe.expert_ffn);
  into.add("--moe-router-topk", moe.top_k);
  if (moe.shared_ffn > 0) into.add("--moe-shared-expert-intermediate-size", moe.shared_ffn);
  if (moe.shared_gate) into.add("--moe-shared-expert-gate");
  if (moe.sigmoid_score) into.add("--moe-router-score-function", "sigmoid");
  if (!moe.normalize) into.add("--moe-router-pre-softmax");
  if (moe.expert_groups > 1) {
    into.add("--moe-router-num-groups", moe.expert_groups);
    into.add("--moe-router-group-topk", moe.top_groups);
  }
  if (moe.scale != 1) into.add("--moe-router-topk-scaling-factor", number(moe.scale));
  if (moe.correction_bias) into.add("--moe-router-enable-expert-bias");
  into.add("--moe-router-load-balancing-type", moe.aux_loss > 0 ? "aux_loss" : "none");
  if (moe.aux_loss > 0) into.add("--moe-aux-loss-coeff", number(moe.aux_loss));
  if (moe.capacity_factor > 0) {
    into.add("--moe-expert-capacity-factor", number(moe.capacity_factor));
    into.add("--moe-pad-expert-input-to-capacity");
  }
  into.add("--moe-grouped-gemm");
  return Ok{};
}

Status read_experts(const Arguments& given, TransformerConfig& config, std::vector<std::string>& notes) {
  MoeConfig& moe = config.moe;
  moe.experts = given.integer("--num-experts", 0);
  if (moe.experts == 0) {
    for (const Argument& each : given.all())
      if (each.flag.starts_with("--moe-") && find_megatron_argument(each.flag)->role == ArgumentRole::Read)
        return given.fail(each.flag, "needs --num-experts");
    return Ok{};
  }
  moe.top_k = given.integer("--moe-router-topk", 2);
  moe.expert_ffn = given.integer("--moe-ffn-hidden-size", config.ffn);
  moe.shared_ffn = given.integer("--moe-shared-expert-intermediate-size", 0);
  moe.shared_gate = given.has("--moe-shared-expert-gate");
  const std::string score = given.word("--moe-router-score-function", "softmax");
  if (score == "sqrtsoftplus") return given.fail("--moe-router-score-function", "Weft scores by softmax or sigmoid");
  moe.sigmoid_score = score == "sigmoid";
  moe.normalize = !given.has("--moe-router-pre-softmax");
  if (given.has("--moe-router-num-groups") != given.has("--moe-router-group-topk"))
    return given.fail(given.has("--moe-router-num-groups") ? "--moe-router-num-groups" : "--moe-router-group-topk",
                      "--moe-router-num-groups and --moe-router-group-topk go together");
  moe.expert_groups = given.integer("--moe-router-num-groups", 1);
  moe.top_groups = given.integer("--moe-router-group-topk", 0);
  moe.scale = given.number("--moe-router-topk-scaling-factor", 1);
  moe.correction_bias = given.has("--moe-router-enable-expert-bias");
  if (const Argument* balancing = given.find("--moe-router-load-balancing-type"); balancing) {
    if (balancing->values.size() > 1) return given.fail(balancing->flag, "Weft has one balancing loss");
    if (balancing->values[0] == "sinkhorn" || balancing->values[0] == "quantile_balancing")
      return given.fail(balancing->flag, "Weft balances by an auxiliary loss or not at all");
    if (balancing->values[0] != "none" && balancing->values[0] != "aux_loss")
      notes.push_back(fmt::format("{} counts as aux_loss", balancing->values[0]));
  }
  if (given.word("--moe-router-load-balancing-type", "aux_loss") != "none")
    moe.aux_loss = given.number("--moe-aux-loss-coeff", 0);
  moe.capacity_factor = given.number("--moe-expert-capacity-factor", 0);
  if (moe.capacity_factor > 0 && !given.has("--moe-pad-expert-input-to-capacity"))
    return given.fail("--moe-expert-capacity-factor",
                      "Weft pads experts to their capacity; add --moe-pad-expert-input-to-capacity");
  if (!given.has("--moe-grouped-gemm"))
    notes.emplace_back("without --moe-grouped-gemm experts are multiplied one after the other; predicted as grouped");
  const std::string frequency = given.word("--moe-layer-freq", "1");
  std::vector<int> pattern;
  if (frequency.find_first_not_of("0123456789") == std::string::npos) {
    const std::int64_t every = given.integer("--moe-layer-freq", 1);
    if (every < 1) return given.fail("--moe-layer-freq", "at least 1");
    for (std::int64_t i = 0; i < config.layers; ++i) pattern.push_back(i % every == 0 ? 1 : 0);
  } else {
    const auto read = read_layer_pattern(frequency, config.layers);
    if (!read.ok()) return given.fail("--moe-layer-freq", read.error().message);
    pattern = *read;
  }
  // The first layers dense, and then every k-th with experts.
  for (std::int64_t dense = 0; dense <= config.layers; ++dense) {
    if (dense > 0 && pattern[static_cast<std::size_t>(dense - 1)] == 1) break;
    for (moe.every = 1; moe.every <= config.layers; ++moe.every) {
      moe.first_dense = dense;
      if (moe_pattern(config) == pattern) return Ok{};
      if (config.layers > 256 && moe.every > 8) break;
    }
  }
  return given.fail("--moe-layer-freq",
                    "Weft has layers with experts after some dense ones, or every k-th: layers k, 2k, …");
}

}  // namespace

Result<std::vector<int>> read_layer_pattern(std::string_view text, std::int64_t layers) {
  WEFT_TRY(std::vector<int> pattern, PatternReader(text, static_cast<std::size_t>(layers)).run());
  if (static_cast<std::int64_t>(pattern.size()) != layers)
    return error("'{}' lists {} layers; the model has {}", text.substr(0, 60), pattern.size(), layers);
  return pattern;
}

std::string write_layer_pattern(const std::vector<int>& pattern) {
  std::string text = "(";
  for (std::size_t i = 0; i < pattern.size();) {
    std::size_t end = i;
    while (end < pattern.size() && pattern[end] == pattern[i]) ++end;
    text += fmt::format("{}[{}]*{}", i > 0 ? "+" : "", pattern[i], end - i);
    i = end;
  }
  return text + ")";
}

Result<TransformerConfig> decoder_of(const TrainingJob& job) {
  const Result<ModelConfig> config = configuration_of(job.words.model);
  const auto* transformer = config.ok() ? std::get_if<TransformerConfig>(&*config) : nullptr;
  if (transformer == nullptr || transformer->structure != Structure::Decoder)
    return error("{} is no decoder-only transformer", job.words.model);
  return canonical(*transformer);
}

Status write_shape(const TransformerConfig& given, Arguments& into) {
  const TransformerConfig config = canonical(given);
  if (config.norm == Norm::LayerNoBias) return error("LayerNorm without biases");
  if (config.positions == Positions::Alibi || config.positions == Positions::Relative)
    return error("ALiBi or relative positions");
  if (config.position_rows > 0 && config.position_rows != config.context)
    return error("a table of positions with other rows than the context has tokens");
  switch (config.activation) {
    case Activation::GeluTanh:
    case Activation::Gelu:
    case Activation::Relu2:
    case Activation::SwiGlu:
      break;
    default:
      return error("activations other than GELU, squared ReLU and SwiGLU");
  }
  const std::pair<bool, const char*> lacking[] = {
      {config.post_norms, "norms after attention and feed-forward"},
      {config.parallel_residual || config.shared_norm, "attention and feed-forward side by side"},
      {config.embedding_norm, "a norm of the embeddings"},
      {config.embedding_scale != 1, "scaled embeddings"},
      {config.attention_scale != 0 || config.attention_softcap != 0 || config.logit_softcap != 0,
       "scales and soft caps of attention scores and logits"},
      {config.head_bias, "a bias of the head"},
      {config.window > 0 && config.full_every != 0, "sliding windows in some layers only"},
      {config.zigzag != 1, "an order of tokens set by hand (zigzag)"},
      {!config.fused_attention, "attention of separate operators as part of the model (fused_attention=0)"},
      {config.out_bias != config.mlp_bias, "a bias of the attention's output without one of the feed-forward layer"},
      {config.mlp_bias && !config.qkv_bias, "biases everywhere but in queries, keys and values"},
      {config.positions == Positions::Rotary && !is_whole(config.rotary_base), "a rotary base that is no whole number"},
      {config.mla.kv_lora > 0 && (config.qkv_bias || config.positions != Positions::Rotary),
       "latent attention with biases or without rotary positions"}};
  for (const auto& [lacks, what] : lacking)
    if (lacks) return error("{}", what);
  into.add("--num-layers", config.layers);
  into.add("--hidden-size", config.hidden);
  into.add("--ffn-hidden-size", config.ffn);
  into.add("--num-attention-heads", config.heads);
  if (config.mla.kv_lora > 0) {
    into.add("--multi-latent-attention");
    if (config.mla.q_lora > 0) into.add("--q-lora-rank", config.mla.q_lora);
    into.add("--kv-lora-rank", config.mla.kv_lora);
    into.add("--qk-head-dim", config.mla.nope);
    into.add("--qk-pos-emb-head-dim", config.mla.rope);
    into.add("--v-head-dim", config.mla.value);
  } else {
    if (config.head_dim * config.heads != config.hidden) into.add("--kv-channels", config.head_dim);
    if (config.kv_heads != config.heads) {
      into.add("--group-query-attention");
      into.add("--num-query-groups", config.kv_heads);
    }
  }
  into.add("--vocab-size", config.vocab);
  into.add("--max-position-embeddings", config.context);
  into.add("--position-embedding-type", config.positions == Positions::Learned  ? "learned_absolute"
                                        : config.positions == Positions::Rotary ? "rope"
                                                                                : "none");
  if (config.positions == Positions::Rotary) {
    into.add("--rotary-base", static_cast<std::int64_t>(config.rotary_base));
    if (config.mla.kv_lora == 0 && config.rotary_dim != config.head_dim)
      into.add("--rotary-percent",
               number(static_cast<double>(config.rotary_dim) / static_cast<double>(config.head_dim)));
  }
  into.add("--normalization", config.norm == Norm::Rms ? "RMSNorm" : "LayerNorm");
  if (config.activation == Activation::SwiGlu) into.add("--swiglu");
  if (config.activation == Activation::Relu2) into.add("--squared-relu");
  if (!config.mlp_bias) into.add("--disable-bias-linear");
  if (!config.mlp_bias && config.qkv_bias) into.add("--add-qkv-bias");
  if (!config.tied) into.add("--untie-embeddings-and-output-weights");
  if (config.qk_norm) into.add("--qk-layernorm");
  if (config.window > 0) into.add("--window-size", fmt::format("{},0", config.window - 1));
  into.add("--hidden-dropout", number(config.dropout));
  into.add("--attention-dropout", number(config.dropout));
  return write_experts(config, into);
}

Result<TransformerConfig> read_shape(const Arguments& given, std::vector<std::string>& notes) {
  for (const char* needed : {"--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings"})
    if (!given.has(needed)) return given.fail(needed, "missing; Megatron-LM requires it");
  TransformerConfig config;
  config.layers = given.integer("--num-layers", 0);
  config.hidden = given.integer("--hidden-size", 0);
  config.heads = given.integer("--num-attention-heads", 0);
  config.context = given.integer("--max-position-embeddings", 0);
  for (const char* positive : {"--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings"})
    if (given.integer(positive, 1) < 1 || given.integer(positive, 1) > (std::int64_t{1} << 40))
      return given.fail(positive, "must be at least 1");
  if (config.layers > 10'000) return given.fail("--num-layers", "at most 10,000");
  if (given.has("--swiglu") && given.has("--squared-relu"))
    return given.fail("--squared-relu", "contradicts --swiglu; keep one");
  config.activation = given.has("--swiglu")         ? Activation::SwiGlu
                      : given.has("--squared-relu") ? Activation::Relu2
                      : given.has("--no-bias-gelu-fusion") || given.has("--disable-bias-linear")
                          ? Activation::Gelu
                          : Activation::GeluTanh;  // the fused kernel's
  // Unset, the width is 4 · hidden, or with SwiGLU 8/3 · hidden rounded down to 64.
  config.ffn =
      given.integer("--ffn-hidden-size", given.has("--swiglu") ? config.hidden * 8 / 3 / 64 * 64 : 4 * config.hidden);
  if (given.has("--multi-latent-attention")) {
    config.mla = {.kv_lora = given.integer("--kv-lora-rank", 32),
                  .q_lora = given.integer("--q-lora-rank", 0),
                  .rope = given.integer("--qk-pos-emb-head-dim", 64),
                  .nope = given.integer("--qk-head-dim", 128),
                  .value = given.integer("--v-head-dim", 128)};
    config.kv_heads = config.heads;
  } else {
    for (const char* latent :
         {"--kv-lora-rank", "--q-lora-rank", "--qk-pos-emb-head-dim", "--qk-head-dim", "--v-head-dim"})
      if (given.has(latent)) return given.fail(latent, "needs --multi-latent-attention");
    if (given.has("--num-query-groups") && !given.has("--group-query-attention"))
      return given.fail("--num-query-groups", "Megatron-LM ignores it without --group-query-attention; add that");
    config.kv_heads = given.has("--group-query-attention") ? given.integer("--num-query-groups", 1) : config.heads;
    config.head_dim = given.integer("--kv-channels", 0);
  }
  if (given.has("--vocab-size")) {
    config.vocab = given.integer("--vocab-size", 0);
  } else if (given.word("--tokenizer-type", "") == "GPT2BPETokenizer") {
    config.vocab = 50257;
    notes.emplace_back("vocabulary of 50,257: GPT-2's, of --tokenizer-type GPT2BPETokenizer (--vocab-size)");
  } else {
    return given.fail("--vocab-size", "missing: the vocabulary is in the tokenizer's files; add --vocab-size");
  }
  const std::string positions = given.word("--position-embedding-type", "learned_absolute");
  if (positions == "yarn" || positions == "mrope" || positions == "relative")
    return given.fail("--position-embedding-type", fmt::format("Weft has no {} positions in decoders", positions));
  config.positions = positions == "rope"   ? Positions::Rotary
                     : positions == "none" ? Positions::None
                                           : Positions::Learned;
  if (config.positions == Positions::Rotary) {
    config.rotary_base = static_cast<double>(given.integer("--rotary-base", 10000));
    const double share = given.number("--rotary-percent", 1);
    if (!(share > 0 && share <= 1)) return given.fail("--rotary-percent", "above 0, at most 1");
    if (share < 1) config.rotary_dim = std::llround(share * static_cast<double>(config.head_width()));
  }
  config.norm = given.word("--normalization", "LayerNorm") == "RMSNorm" ? Norm::Rms : Norm::Layer;
  config.out_bias = config.mlp_bias = !given.has("--disable-bias-linear");
  config.qkv_bias = config.mlp_bias || given.has("--add-qkv-bias");
  config.tied = !given.has("--untie-embeddings-and-output-weights");
  config.qk_norm = given.has("--qk-layernorm");
  if (const Argument* window = given.find("--window-size")) {
    const std::string& text = window->values[0];
    const std::size_t comma = text.find(',');
    const auto left =
        comma == std::string::npos ? Result<std::int64_t>(error("")) : parse_integer(text.substr(0, comma), "");
    if (!left.ok() || *left < 0 || *left > (std::int64_t{1} << 40) || text.substr(comma + 1) != "0")
      return given.fail(window->flag, "write the tokens before a token that it attends to and 0: 4095,0");
    config.window = *left + 1;
  }
  config.dropout = given.number("--hidden-dropout", 0.1);
  if (given.number("--attention-dropout", 0.1) != config.dropout)
    return given.fail(
        given.has("--attention-dropout") ? "--attention-dropout" : "--hidden-dropout",
        fmt::format("Weft has one dropout: --hidden-dropout is {}, --attention-dropout {} (0.1 unless given)",
                    config.dropout, given.number("--attention-dropout", 0.1)));
  WEFT_TRY_OK(read_experts(given, config, notes));
  return canonical(config);
}

}  // namespace weft
