#include "models/transformer.h"

#include <fmt/format.h>

#include "models/transformer_blocks.h"

namespace weft {
namespace {

// Bounds on what a file or an override may ask for; far beyond any model, small enough never to exhaust
// memory.
Status within(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) return error("{}={}: must be between {} and {}", name, value, low, high);
  return Ok{};
}

Status check_moe(const TransformerConfig& config) {
  const MoeConfig& moe = config.moe;
  if (moe.experts == 0) return Ok{};
  WEFT_TRY_OK(within("experts", moe.experts, 1, 100'000));
  if (moe.top_k < 1 || moe.top_k > moe.experts)
    return error("top_k={}: must be between 1 and experts={}", moe.top_k, moe.experts);
  WEFT_TRY_OK(within("expert_ffn", moe.expert_ffn, 0, 1LL << 24));
  WEFT_TRY_OK(within("shared_ffn", moe.shared_ffn, 0, 1LL << 24));
  WEFT_TRY_OK(within("first_dense", moe.first_dense, 0, 10'000));
  WEFT_TRY_OK(within("every", moe.every, 1, 10'000));
  if (moe.groups.empty() || moe.groups.size() > 4) return error("groups: write 1 to 4 factors, 2x4");
  for (std::int64_t factor : moe.groups) WEFT_TRY_OK(within("groups", factor, 1, 1 << 15));
  WEFT_TRY_OK(within("expert_groups", moe.expert_groups, 1, moe.experts));
  if (moe.top_groups < 0 || moe.top_groups > moe.expert_groups || moe.experts % moe.expert_groups != 0 ||
      (moe.top_groups > 0 && moe.experts / moe.expert_groups * moe.top_groups < moe.top_k))
    return error("top_groups={} of expert_groups={}: must divide experts={} and leave top_k={} to choose from",
                 moe.top_groups, moe.expert_groups, moe.experts, moe.top_k);
  if (!(moe.capacity_factor >= 0 && moe.capacity_factor <= 1000))
    return error("capacity_factor={}: must be between 0 (dropless) and 1000", moe.capacity_factor);
  // Where every token chooses the same experts, these have experts/top_k times the mean.
  const double most = static_cast<double>(moe.experts) / static_cast<double>(moe.top_k);
  if (!(moe.imbalance >= 1 && moe.imbalance <= most))
    return error("imbalance={}: must be between 1 (balanced) and experts/top_k={:.3g} (all tokens choose the same)",
                 moe.imbalance, most);
  if (moe.imbalance > 1 && moe.capacity_factor > 0)
    return error("imbalance={}: with capacity_factor={} every expert has the rows of its capacity; leave one out",
                 moe.imbalance, moe.capacity_factor);
  if (!(moe.aux_loss >= 0 && moe.aux_loss <= 1000))
    return error("aux_loss={}: must be between 0 (none) and 1000", moe.aux_loss);
  return Ok{};
}

Status check_attention(const TransformerConfig& config) {
  WEFT_TRY_OK(within("heads", config.heads, 1, 65'536));
  WEFT_TRY_OK(within("kv_heads", config.kv_heads, 0, 65'536));
  WEFT_TRY_OK(within("head_dim", config.head_dim, 0, 65'536));
  if (config.heads % config.key_heads() != 0)
    return error("kv_heads={} does not divide heads={}", config.key_heads(), config.heads);
  const MlaConfig& mla = config.mla;
  if (mla.kv_lora > 0) {
    WEFT_TRY_OK(within("kv_lora", mla.kv_lora, 1, 1 << 20));
    WEFT_TRY_OK(within("q_lora", mla.q_lora, 0, 1 << 20));
    WEFT_TRY_OK(within("rope", mla.rope, 2, 65'536));
    WEFT_TRY_OK(within("nope", mla.nope, 1, 65'536));
    WEFT_TRY_OK(within("value", mla.value, 1, 65'536));
    if (mla.rope % 2 != 0) return error("rope={}: must be even", mla.rope);
    if (config.key_heads() != config.heads)
      return error("kv_heads={}: latent attention has a key and value of its own per head; leave kv_heads at heads={}",
                   config.kv_heads, config.heads);
  } else {
    if (config.head_dim == 0 && config.hidden % config.heads != 0)
      return error("heads={} does not divide hidden={}; change one of them or set head_dim", config.heads,
                   config.hidden);
    const std::int64_t rotated = config.rotary_dim > 0 ? config.rotary_dim : config.head_width();
    if (config.positions == Positions::Rotary && (rotated % 2 != 0 || rotated > config.head_width()))
      return error("rotary_dim={}: must be even and at most head_dim={}", rotated, config.head_width());
  }
  return Ok{};
}

class TransformerBuilder {
 public:
  TransformerBuilder(GraphBuilder& builder, const TransformerConfig& config, const StepShape& step)
      : b_(builder), config_(config), step_(step), blocks_(builder, config, step.dtype), net_(blocks_.net()) {}

  void build() {
    switch (config_.structure) {
      case Structure::Decoder:
        return decoder();
      case Structure::Encoder:
        return encoder();
      case Structure::EncoderDecoder:
        return encoder_decoder();
      case Structure::Vision:
        return vision();
    }
  }

 private:
  Shape tokens(std::int64_t seq) const { return {step_.batch, seq}; }

  // Token embedding with what is added to it.
  TensorId embed(TensorId ids) {
    const auto scope = b_.scope("embed");
    const LayerBuilder::Lookup lookup = net_.embedding("tokens", ids, config_.vocab, config_.hidden);
    table_ = lookup.table;
    TensorId x = lookup.y;
    if (config_.embedding_scale != 1) x = net_.unary("scale", x, "scale", config_.embedding_scale);
    if (config_.positions == Positions::Learned) {
      const std::int64_t rows = config_.position_rows > 0 ? config_.position_rows : config_.context;
      if (step_.seq > config_.context)
        b_.fail(error("seq={}: the model has {} learned positions; use a shorter sequence or override context",
                      step_.seq, config_.context));
      const TensorId ids_of_positions = b_.input("position_ids", DType::I64, tokens(step_.seq));
      x = net_.add("positions_add", x, net_.embedding("positions", ids_of_positions, rows, config_.hidden).y);
    }
    if (config_.structure == Structure::Encoder && config_.token_types > 0) {
      const TensorId types = b_.input("token_type_ids", DType::I64, tokens(step_.seq));
      x = net_.add("token_types_add", x, net_.embedding("token_types", types, config_.token_types, config_.hidden).y);
    }
    if (config_.embedding_norm || config_.structure == Structure::Encoder) x = blocks_.norm("norm", x);
    return net_.dropout("dropout", x, config_.dropout);
  }

  TensorId logits(TensorId x) {
    if (!config_.tied) head_ = net_.parameter("logits", "weight", {net_.shape(x).back(), config_.vocab});
    TensorId y = config_.tied ? net_.tied_linear("logits", x, table_) : b_.op1(OpKind::Linear, "logits", {x, head_});
    if (config_.head_bias) y = net_.add_bias("logits", y);
    return config_.logit_softcap > 0 ? net_.unary("softcap", y, "softcap", config_.logit_softcap) : y;
  }

  // The loss, with the experts' balancing losses added.
  void finish(TensorId loss) {
    int count = 0;
    for (TensorId auxiliary : blocks_.auxiliary_losses())
      loss = net_.add(fmt::format("aux_add{}", count++), loss, auxiliary);
    b_.result(loss);
  }

  void decoder() {
    TensorId x = embed(b_.input("tokens", DType::I64, tokens(step_.seq)));
    for (std::int64_t i = 0; i < config_.layers && b_.ok(); ++i) {
      x = blocks_.layer(i, x, attention_of(i));
    }
    TensorId loss;
    {
      const auto scope = b_.scope("head");
      const TensorId labels = b_.input("labels", DType::I64, tokens(step_.seq));
      loss = net_.cross_entropy("loss", logits(blocks_.norm("norm", x)), labels);
    }
    for (std::int64_t i = 0; i < config_.mtp && b_.ok(); ++i) loss = further_token(i, x, loss);
    finish(loss);
  }

  TransformerBlocks::AttentionOptions attention_of(std::int64_t layer) const {
    const bool slides = config_.slides(layer) && config_.window < step_.seq;
    return {.causal = true, .window = slides ? config_.window : 0, .rotary = config_.rotates(layer)};
  }

  // A module of multi-token prediction: from the hidden state of a token and the embedding of the next one, a layer
  // predicts the token after it, with the main model's embedding and head. `x` becomes its hidden state.
  TensorId further_token(std::int64_t index, TensorId& x, TensorId loss) {
    constexpr double kWeight = 0.3;  // DeepSeek-V3 report, section 4.2: λ = 0.3 for the first 10 T tokens
    const auto scope = b_.scope(fmt::format("mtp{}", index));
    const TensorId ids = b_.input("tokens", DType::I64, tokens(step_.seq));
    TensorId next = b_.op1(OpKind::Embedding, "embed", {ids, table_});
    next = net_.concat("joined", {blocks_.norm("embed_norm", next), blocks_.norm("hidden_norm", x)}, 2);
    x = blocks_.layer_here(config_.layers, net_.linear("project", next, config_.hidden, false),
                           attention_of(config_.layers));
    const TensorId normed = blocks_.norm("norm", x);
    const TensorId y =
        config_.tied ? net_.tied_linear("logits", normed, table_) : b_.op1(OpKind::Linear, "logits", {normed, head_});
    const TensorId own = net_.cross_entropy("loss", y, b_.input("labels", DType::I64, tokens(step_.seq)));
    return net_.add("loss_add", loss,
                    net_.unary("loss_scale", own, "scale", kWeight / static_cast<double>(config_.mtp)));
  }

  void encoder() {
    TensorId x = embed(b_.input("tokens", DType::I64, tokens(step_.seq)));
    for (std::int64_t i = 0; i < config_.layers && b_.ok(); ++i) x = blocks_.post_norm_layer(i, x);
    const auto scope = b_.scope("head");
    // Next sentence: from the first token.
    TensorId first = net_.position("first", x, 0);
    first = net_.unary("pooler_tanh", net_.linear("pooler", first, config_.hidden, true), "tanh");
    const TensorId next = net_.linear("next_sentence", first, 2, true);
    const TensorId next_loss =
        net_.cross_entropy("next_sentence_loss", next, b_.input("next_sentence_labels", DType::I64, {step_.batch}));
    // Masked tokens: predicted at every position (labels mark those that count), or at as many positions as are masked.
    const std::int64_t predicted = config_.masked > 0 ? std::min(config_.masked, step_.seq) : step_.seq;
    if (predicted < step_.seq)
      x = b_.op1(OpKind::Slice, "masked", {x},
                 {{"dim", std::int64_t{1}}, {"begin", std::int64_t{0}}, {"end", predicted}});
    TensorId y = net_.unary("transform_act", net_.linear("transform", x, config_.hidden, true), "gelu");
    y = logits(blocks_.norm("transform_norm", y));
    const TensorId loss = net_.cross_entropy("masked_loss", y, b_.input("labels", DType::I64, tokens(predicted)));
    finish(net_.add("loss", loss, next_loss));
  }

  // T5's bias per head and distance, from one small table per stack that all its layers share.
  TensorId relative_bias(std::int64_t seq) {
    const TensorId buckets = b_.input("relative_buckets", DType::I64, {seq, seq});
    const TensorId bias = net_.embedding("relative_bias", buckets, config_.relative_buckets, config_.heads).y;
    return net_.transpose("relative_bias_by_head", bias, {2, 0, 1});
  }

  void encoder_decoder() {
    const std::int64_t decoder_seq = config_.decoder_seq > 0 ? config_.decoder_seq : step_.seq;
    const std::int64_t decoder_layers = config_.decoder_layers > 0 ? config_.decoder_layers : config_.layers;
    const double p = config_.dropout;
    const auto mlp_part = [&](TensorId x) {
      TensorId y = blocks_.norm("mlp_norm", x);
      {
        const auto scope = b_.scope("mlp");
        y = blocks_.mlp(y, config_.ffn_width());
      }
      return net_.add("mlp_add", x, net_.dropout("mlp_dropout", y, p));
    };

    TensorId memory = embed(b_.input("tokens", DType::I64, tokens(step_.seq)));
    {
      const auto scope = b_.scope("encoder");
      const TransformerBlocks::AttentionOptions options{.causal = false, .position_bias = relative_bias(step_.seq)};
      for (std::int64_t i = 0; i < config_.layers && b_.ok(); ++i) {
        const auto layer = b_.scope(fmt::format("layers.{}", i));
        const TensorId y = blocks_.self_attention(blocks_.norm("attn_norm", memory), options);
        memory = mlp_part(net_.add("attn_add", memory, net_.dropout("attn_dropout", y, p)));
      }
      memory = net_.dropout("dropout", blocks_.norm("norm", memory), p);
    }

    const auto decoder_scope = b_.scope("decoder");
    TensorId x = b_.op1(OpKind::Embedding, "tokens", {b_.input("tokens", DType::I64, tokens(decoder_seq)), table_});
    x = net_.dropout("tokens_dropout", x, p);
    const TransformerBlocks::AttentionOptions options{.causal = true, .position_bias = relative_bias(decoder_seq)};
    for (std::int64_t i = 0; i < decoder_layers && b_.ok(); ++i) {
      const auto layer = b_.scope(fmt::format("layers.{}", i));
      TensorId y = blocks_.self_attention(blocks_.norm("attn_norm", x), options);
      x = net_.add("attn_add", x, net_.dropout("attn_dropout", y, p));
      y = blocks_.cross_attention(blocks_.norm("cross_norm", x), memory);
      x = mlp_part(net_.add("cross_add", x, net_.dropout("cross_dropout", y, p)));
    }
    const auto root = b_.scope(ModuleId(0));
    const auto scope = b_.scope("head");
    const TensorId y = logits(net_.dropout("dropout", blocks_.norm("norm", x), p));
    finish(net_.cross_entropy("loss", y, b_.input("labels", DType::I64, tokens(decoder_seq))));
  }

  void vision() {
    const std::int64_t side = config_.image / config_.patch, patches = side * side;
    TensorId x;
    {
      const auto scope = b_.scope("embed");
      const TensorId image =
          b_.input("image", step_.dtype, {step_.batch, config_.channels, config_.image, config_.image});
      x = net_.conv2d("patches", image, config_.hidden, LayerBuilder::square(config_.patch, config_.patch), true);
      x = net_.reshape("patches_flat", x, {step_.batch, config_.hidden, patches});
      x = net_.transpose("patches_rows", x, {0, 2, 1});
      TensorId token = net_.parameter("class_token", "weight", {1, 1, config_.hidden});
      if (step_.batch > 1)
        token = b_.op1(OpKind::Expand, "class_token", {token}, {{"dim", std::int64_t{0}}, {"times", step_.batch}});
      x = net_.concat("joined", {token, x}, 1);
      x = net_.add("positions", x, net_.parameter("positions", "weight", {1, patches + 1, config_.hidden}));
      x = net_.dropout("dropout", x, config_.dropout);
    }
    for (std::int64_t i = 0; i < config_.layers && b_.ok(); ++i) x = blocks_.layer(i, x, {.causal = false});
    const auto scope = b_.scope("head");
    const TensorId first = net_.position("first", blocks_.norm("norm", x), 0);
    const TensorId y = net_.linear("logits", first, config_.classes, true);
    finish(net_.cross_entropy("loss", y, b_.input("labels", DType::I64, {step_.batch})));
  }

  GraphBuilder& b_;
  const TransformerConfig& config_;
  const StepShape& step_;
  TransformerBlocks blocks_;
  LayerBuilder& net_;
  TensorId table_, head_;  // of the embedding and of the logits
};

}  // namespace

Status check(const TransformerConfig& config) {
  WEFT_TRY_OK(within("layers", config.layers, 1, 10'000));
  WEFT_TRY_OK(within("decoder_layers", config.decoder_layers, 0, 10'000));
  WEFT_TRY_OK(within("hidden", config.hidden, 1, 1 << 22));
  WEFT_TRY_OK(within("ffn", config.ffn, 0, 1LL << 24));
  WEFT_TRY_OK(check_attention(config));
  WEFT_TRY_OK(check_moe(config));
  if (!(config.dropout >= 0 && config.dropout < 1))
    return error("dropout={}: must be at least 0 and below 1", config.dropout);
  WEFT_TRY_OK(within("window", config.window, 0, 1LL << 40));
  WEFT_TRY_OK(within("full_every", config.full_every, 0, 10'000));
  WEFT_TRY_OK(within("unrotated_every", config.unrotated_every, 0, 10'000));
  WEFT_TRY_OK(within("mtp", config.mtp, 0, 16));
  WEFT_TRY_OK(within("lora", config.lora.rank, 0, 65'536));
  if (config.mtp > 0 && config.structure != Structure::Decoder)
    return error("mtp={}: only decoders predict further tokens", config.mtp);
  if (!config.pre_norms && !config.post_norms) return error("pre_norms=0: without post_norms nothing is normalised");
  if (config.structure == Structure::Vision) {
    WEFT_TRY_OK(within("image", config.image, 1, 1 << 20));
    WEFT_TRY_OK(within("patch", config.patch, 1, 1 << 20));
    WEFT_TRY_OK(within("channels", config.channels, 1, 1 << 20));
    WEFT_TRY_OK(within("classes", config.classes, 1, 1LL << 30));
    if (config.image % config.patch != 0) return error("patch={} does not divide image={}", config.patch, config.image);
    return Ok{};
  }
  WEFT_TRY_OK(within("vocab", config.vocab, 1, 1LL << 30));
  if (config.zigzag > 1 && (config.structure != Structure::Decoder || !config.fused_attention))
    return error("zigzag={}: only decoders with fused attention keep their tokens in that order", config.zigzag);
  WEFT_TRY_OK(within("context", config.context, 1, 1LL << 30));
  WEFT_TRY_OK(within("decoder_seq", config.decoder_seq, 0, 1LL << 30));
  WEFT_TRY_OK(within("token_types", config.token_types, 0, 1 << 20));
  if (config.positions == Positions::Relative) {
    if (config.structure != Structure::EncoderDecoder)
      return error("positions=relative: only encoder-decoders (T5) have them");
    WEFT_TRY_OK(within("relative_buckets", config.relative_buckets, 1, 1 << 20));
    if (config.fused_attention)
      return error("fused_attention=1: the fused operator takes no relative position bias; leave it at 0");
  } else if (config.structure == Structure::EncoderDecoder) {
    return error("an encoder-decoder needs positions=relative");
  }
  return Ok{};
}

void build_transformer(GraphBuilder& builder, const TransformerConfig& config, const StepShape& step) {
  if (config.moe.experts > 0 && step.seq % config.moe.group_count() != 0)
    return builder.fail(error("groups={} does not divide seq={}", fmt::join(config.moe.groups, "x"), step.seq));
  TransformerBuilder(builder, config, step).build();
}

}  // namespace weft
