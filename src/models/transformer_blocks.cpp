#include "models/transformer_blocks.h"

#include <fmt/format.h>

#include <cmath>

#include "base/checked.h"

namespace weft {
namespace {

std::string_view function_of(Activation activation) {
  switch (activation) {
    case Activation::Gelu:
      return "gelu";
    case Activation::GeluTanh:
      return "gelu_tanh";
    case Activation::Relu:
      return "relu";
    case Activation::Relu2:
      return "relu2";
    case Activation::SwiGlu:
      return "silu";
    case Activation::GeGlu:
      return "gelu";
    case Activation::GeGluTanh:
      return "gelu_tanh";
  }
  return "?";
}

// Tokens of one group that an expert takes; when dropless, the average number routed to those of the busiest device.
std::int64_t expert_capacity(const MoeConfig& moe, std::int64_t tokens_per_group) {
  const double average = static_cast<double>(tokens_per_group * moe.top_k) / static_cast<double>(moe.experts);
  const double rows =
      moe.capacity_factor > 0 ? std::ceil(average * moe.capacity_factor) : std::round(average * moe.imbalance);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(rows));
}

}  // namespace

TensorId TransformerBlocks::norm(const std::string& name, TensorId x) {
  if (config_.norm == Norm::Rms) return net_.rms_norm(name, x);
  return net_.layer_norm(name, x, config_.norm == Norm::Layer);
}

TensorId TransformerBlocks::rotary(const std::string& name, TensorId x, std::int64_t head_dim,
                                   std::int64_t rotary_dim) {
  Attrs attrs{{"head_dim", head_dim}, {"base", config_.rotary_base}};
  if (rotary_dim > 0 && rotary_dim != head_dim) attrs.set("rotary_dim", rotary_dim);
  if (config_.zigzag > 1) attrs.set("zigzag", config_.zigzag);
  return net_.builder().op1(OpKind::Rotary, name, {x}, attrs);
}

TensorId TransformerBlocks::adapted(const std::string& name, TensorId x, std::int64_t out, bool bias,
                                    bool has_adapter) {
  const TensorId y = net_.linear(name, x, out, bias);
  if (config_.lora.rank == 0 || !has_adapter) return y;
  const TensorId low = net_.linear(name + "_lora_a", x, config_.lora.rank, false);
  return net_.add(name + "_lora_add", y, net_.linear(name + "_lora_b", low, out, false));
}

TensorId TransformerBlocks::self_attention(TensorId x, const AttentionOptions& options) {
  const auto scope = net_.builder().scope("attn");
  return config_.mla.kv_lora > 0 ? latent_attention(x, options) : grouped_query_attention(x, options);
}

TensorId TransformerBlocks::grouped_query_attention(TensorId x, const AttentionOptions& options) {
  const std::int64_t d = config_.head_width(), heads = config_.heads, groups = config_.key_heads();
  const std::int64_t queries = heads / groups;  // query heads that share a key/value head
  const TensorId qkv = adapted("qkv", x, groups * (queries + 2) * d, config_.qkv_bias, config_.lora.attention);
  const std::vector<TensorId> parts = net_.split("split", qkv, 2, {queries * d, d, d}, groups);
  TensorId q = parts[0], k = parts[1];
  if (config_.qk_norm) {
    q = net_.rms_norm("q_norm", q, config_.qk_norm_whole ? 1 : heads);
    k = net_.rms_norm("k_norm", k, config_.qk_norm_whole ? 1 : groups);
  }
  if (config_.positions == Positions::Rotary && options.rotary) {
    q = rotary("q_rotary", q, d, config_.rotary_dim);
    k = rotary("k_rotary", k, d, config_.rotary_dim);
  }
  return adapted("out", core(q, k, parts[2], heads, groups, options), config_.hidden, config_.out_bias,
                 config_.lora.attention);
}

TensorId TransformerBlocks::latent_attention(TensorId x, const AttentionOptions& options) {
  const MlaConfig& mla = config_.mla;
  const std::int64_t heads = config_.heads;
  TensorId q = x;
  if (mla.q_lora > 0) q = net_.rms_norm("q_a_norm", adapted("q_a", x, mla.q_lora, false, config_.lora.attention));
  q = adapted(mla.q_lora > 0 ? "q_b" : "q", q, heads * (mla.nope + mla.rope), false, config_.lora.attention);
  const std::vector<TensorId> q_parts = net_.split("q_split", q, 2, {mla.nope, mla.rope}, heads);
  q = net_.concat("q_joined", {q_parts[0], rotary("q_rotary", q_parts[1], mla.rope, mla.rope)}, 2, heads);

  // The latent vector and the rotated part of the key, which all heads share.
  const std::vector<TensorId> latent =
      net_.split("kv_a_split", adapted("kv_a", x, mla.kv_lora + mla.rope, false, config_.lora.attention), 2,
                 {mla.kv_lora, mla.rope});
  const TensorId kv = adapted("kv_b", net_.rms_norm("kv_a_norm", latent[0]), heads * (mla.nope + mla.value), false,
                              config_.lora.attention);
  const std::vector<TensorId> kv_parts = net_.split("kv_b_split", kv, 2, {mla.nope, mla.value}, heads);
  const TensorId k_rope =
      net_.builder().op1(OpKind::Expand, "k_rotary_expand", {rotary("k_rotary", latent[1], mla.rope, mla.rope)},
                         {{"dim", std::int64_t{2}}, {"times", heads}});
  const TensorId k = net_.concat("k_joined", {kv_parts[0], k_rope}, 2, heads);
  return adapted("out", core(q, k, kv_parts[1], heads, heads, options), config_.hidden, config_.out_bias,
                 config_.lora.attention);
}

TensorId TransformerBlocks::cross_attention(TensorId x, TensorId memory) {
  const auto scope = net_.builder().scope("cross");
  const std::int64_t d = config_.head_width(), heads = config_.heads;
  const TensorId q = net_.linear("q", x, heads * d, config_.qkv_bias);
  const std::vector<TensorId> kv =
      net_.split("split", net_.linear("kv", memory, heads * 2 * d, config_.qkv_bias), 2, {d, d}, heads);
  return net_.linear("out", core(q, kv[0], kv[1], heads, heads, {.causal = false}), config_.hidden, config_.out_bias);
}

TensorId TransformerBlocks::core(TensorId q, TensorId k, TensorId v, std::int64_t heads, std::int64_t kv_heads,
                                 const AttentionOptions& options) {
  // The fused operator takes no bias per score.
  if (!config_.fused_attention || options.position_bias.valid()) return unfused_core(q, k, v, heads, kv_heads, options);
  Attrs attrs{{"heads", heads}, {"kv_heads", kv_heads}};
  if (options.causal) attrs.set("causal", std::int64_t{1});
  if (options.window > 0) attrs.set("window", options.window);
  if (config_.attention_scale > 0) attrs.set("scale", config_.attention_scale);
  if (config_.attention_softcap > 0) attrs.set("softcap", config_.attention_softcap);
  if (config_.dropout > 0) attrs.set("dropout", config_.dropout);
  if (config_.positions == Positions::Alibi) attrs.set("alibi", std::int64_t{1});
  if (config_.zigzag > 1) attrs.set("zigzag", config_.zigzag);
  return net_.builder().op1(OpKind::Attention, "core", {q, k, v}, attrs);
}

TensorId TransformerBlocks::unfused_core(TensorId q, TensorId k, TensorId v, std::int64_t heads, std::int64_t kv_heads,
                                         const AttentionOptions& options) {
  GraphBuilder& b = net_.builder();
  const std::string axes = fmt::format("g={} r={}", kv_heads, heads / kv_heads);
  TensorId scores = b.op1(OpKind::Matmul, "scores", {q, k},
                          {{"notation", std::string("a[b,q,g.r.e] b[b,t,g.e] -> y[b,g.r,q,t]")}, {"axes", axes}});
  TensorId bias = options.position_bias;
  if (config_.positions == Positions::Alibi) {
    // The slope of each head times the key's position: the same for every query row, up to a constant that
    // softmax drops.
    if (!alibi_.valid()) {
      const auto root = b.scope(ModuleId(0));
      alibi_ = b.input("alibi", net_.dtype(), {heads, 1, net_.shape(k).size() > 1 ? net_.shape(k)[1] : 1});
    }
    bias = alibi_;
  }
  const double scale =
      config_.attention_scale > 0
          ? config_.attention_scale
          : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, net_.shape(q).back() / heads)));
  Attrs softmax;
  if (options.causal) softmax.set("causal", std::int64_t{1});
  if (options.window > 0) softmax.set("window", options.window);
  if (bias.valid() || config_.attention_softcap > 0) {
    // Scores are scaled, then capped, then the bias is added.
    if (scale != 1) scores = net_.unary("scale", scores, "scale", scale);
    if (config_.attention_softcap > 0) scores = net_.unary("softcap", scores, "softcap", config_.attention_softcap);
    if (bias.valid()) scores = net_.add("bias", scores, bias);
  } else {
    softmax.set("scale", scale);
  }
  TensorId weights = b.op1(OpKind::Softmax, "softmax", {scores}, softmax);
  weights = net_.dropout("dropout", weights, config_.dropout);
  return b.op1(OpKind::Matmul, "context", {weights, v},
               {{"notation", std::string("a[b,g.r,q,t] b[b,t,g.d] -> y[b,q,g.r.d]")}, {"axes", axes}});
}

TensorId TransformerBlocks::activate(const std::string& name, TensorId x) {
  if (!is_gated(config_.activation)) return net_.unary(name, x, function_of(config_.activation));
  return net_.builder().op1(OpKind::Glu, name, {x},
                            {{"fn", std::string(function_of(config_.activation))}, {"packed", std::int64_t{1}}});
}

TensorId TransformerBlocks::mlp(TensorId x, std::int64_t ffn) {
  const bool gated = is_gated(config_.activation);
  const TensorId up = adapted(gated ? "gate_up" : "up", x, gated ? 2 * ffn : ffn, config_.mlp_bias, config_.lora.mlp);
  return adapted("down", activate("act", up), config_.hidden, config_.mlp_bias, config_.lora.mlp);
}

TensorId TransformerBlocks::experts(TensorId x) {
  const MoeConfig& moe = config_.moe;
  GraphBuilder& b = net_.builder();
  const std::int64_t seq = net_.shape(x).size() > 1 ? net_.shape(x)[1] : 1;
  const bool gated = is_gated(config_.activation);
  const std::int64_t ffn = moe.expert_ffn > 0 ? moe.expert_ffn : config_.ffn_width();

  TensorId logits = net_.linear("router", x, moe.experts, false);
  // DeepSeek adds the bias to the scores for the choice only; here it shifts the logits: the same parameters,
  // bytes and FLOPs.
  if (moe.correction_bias) logits = net_.add_bias("router", logits);
  Attrs routing{{"top_k", moe.top_k}, {"score", std::string(moe.sigmoid_score ? "sigmoid" : "softmax")}};
  if (moe.normalize) routing.set("normalize", std::int64_t{1});
  if (moe.scale != 1) routing.set("scale", moe.scale);
  const std::vector<TensorId> routed = b.op(OpKind::Router, "route", {logits}, routing);
  const TensorId weights = routed[0], index = routed[1];
  if (moe.aux_loss > 0)
    auxiliary_losses_.push_back(
        b.op1(OpKind::AuxLoss, "aux_loss", {logits, index}, {{"groups", moe.groups}, {"coefficient", moe.aux_loss}}));

  Attrs exchange{
      {"experts", moe.experts}, {"capacity", expert_capacity(moe, seq / moe.group_count())}, {"groups", moe.groups}};
  if (moe.capacity_factor <= 0) exchange.set("dropless", std::int64_t{1});
  if (moe.top_groups > 0) {
    exchange.set("expert_groups", moe.expert_groups);
    exchange.set("top_groups", moe.top_groups);
  }
  const TensorId rows = b.op1(OpKind::Dispatch, "dispatch", {x, index}, exchange);
  TensorId y;
  {
    const auto scope = b.scope("experts");
    const std::string up = gated ? "gate_up" : "up";
    const TensorId up_weight = net_.parameter(up, "weight", {moe.experts, config_.hidden, gated ? 2 * ffn : ffn});
    const TensorId down_weight = net_.parameter("down", "weight", {moe.experts, ffn, config_.hidden});
    const auto linear = [&](const std::string& name, TensorId of, TensorId weight, const char* ragged) {
      Attrs attrs;
      if (moe.imbalance > 1) attrs.set("imbalance", moe.imbalance);
      if (moe.capacity_factor <= 0) attrs.set("ragged", std::string(ragged));
      return b.op1(OpKind::ExpertLinear, name, {of, weight}, attrs);
    };
    y = linear(up, rows, up_weight, "in");
    y = activate("act", y);
    if (moe.weigh_rows) {
      const TensorId of_rows = b.op1(OpKind::DispatchWeights, "dispatch_weights", {weights, index}, exchange);
      y = b.op1(OpKind::WeighRows, "weigh", {y, of_rows});
    }
    y = linear("down", y, down_weight, "out");
  }
  if (moe.weigh_rows) {
    exchange.set("weighed", std::int64_t{1});
    y = b.op1(OpKind::Combine, "combine", {y, index}, exchange);
  } else {
    y = b.op1(OpKind::Combine, "combine", {y, weights, index}, exchange);
  }
  if (moe.shared_ffn > 0) {
    TensorId shared;
    {
      const auto scope = b.scope("shared");
      shared = mlp(x, moe.shared_ffn);
      if (moe.shared_gate) {
        const TensorId gate = net_.unary("gate_sigmoid", net_.linear("gate", x, 1, false), "sigmoid");
        shared = b.op1(OpKind::Binary, "gated", {shared, gate}, {{"fn", std::string("mul")}});
      }
    }
    y = net_.add("shared_add", y, shared);
  }
  return y;
}

TensorId TransformerBlocks::feed_forward(std::int64_t index, TensorId x) {
  const bool moe = config_.is_moe_layer(index);
  const auto scope = net_.builder().scope(moe ? "moe" : "mlp");
  return moe ? experts(x) : mlp(x, config_.ffn_width());
}

TensorId TransformerBlocks::layer(std::int64_t index, TensorId x, const AttentionOptions& options) {
  const auto scope = net_.builder().scope(fmt::format("layers.{}", index));
  return layer_here(index, x, options);
}

TensorId TransformerBlocks::layer_here(std::int64_t index, TensorId x, const AttentionOptions& options) {
  const double p = config_.dropout;
  const auto before = [&](const char* name, TensorId y) { return config_.pre_norms ? norm(name, y) : y; };
  const auto finish = [&](const std::string& part, TensorId y) {
    if (config_.post_norms) y = norm(part + "_post_norm", y);
    return net_.dropout(part + "_dropout", y, p);
  };
  const TensorId normed = before("attn_norm", x);
  const TensorId attended = finish("attn", self_attention(normed, options));
  if (config_.parallel_residual) {
    const TensorId mlp_input = config_.shared_norm ? normed : before("mlp_norm", x);
    const TensorId both = net_.add("branch_add", attended, finish("mlp", feed_forward(index, mlp_input)));
    return net_.add("residual_add", x, both);
  }
  x = net_.add("attn_add", x, attended);
  return net_.add("mlp_add", x, finish("mlp", feed_forward(index, before("mlp_norm", x))));
}

TensorId TransformerBlocks::post_norm_layer(std::int64_t index, TensorId x) {
  const auto scope = net_.builder().scope(fmt::format("layers.{}", index));
  const TensorId attended = net_.dropout("attn_dropout", self_attention(x, {.causal = false}), config_.dropout);
  x = norm("attn_norm", net_.add("attn_add", x, attended));
  const TensorId fed = net_.dropout("mlp_dropout", feed_forward(index, x), config_.dropout);
  return norm("mlp_norm", net_.add("mlp_add", x, fed));
}

}  // namespace weft
