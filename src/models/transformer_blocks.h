// The parts of a transformer layer: attention (grouped-query, latent, cross), MLP and mixture of experts.
#pragma once

#include <string>
#include <vector>

#include "models/layer_builder.h"
#include "models/transformer.h"

namespace weft {

class TransformerBlocks {
 public:
  TransformerBlocks(GraphBuilder& builder, const TransformerConfig& config, DType dtype)
      : config_(config), net_(builder, dtype) {}

  LayerBuilder& net() { return net_; }
  TensorId norm(const std::string& name, TensorId x);

  struct AttentionOptions {
    bool causal = true;
    std::int64_t window = 0;      // 0: full
    bool rotary = true;           // where the model has rotary positions
    TensorId position_bias = {};  // [heads, queries, keys], added to the scores; invalid: none
  };
  // x[b,s,h] → [b,s,h], output projection and its bias included.
  TensorId self_attention(TensorId x, const AttentionOptions& options);
  TensorId cross_attention(TensorId x, TensorId memory);

  TensorId mlp(TensorId x, std::int64_t ffn);
  TensorId experts(TensorId x);

  // A whole pre-norm layer: decoders and vision transformers.
  TensorId layer(std::int64_t index, TensorId x, const AttentionOptions& options);
  // The same in the current module.
  TensorId layer_here(std::int64_t index, TensorId x, const AttentionOptions& options);
  // A post-norm layer: BERT.
  TensorId post_norm_layer(std::int64_t index, TensorId x);

  const std::vector<TensorId>& auxiliary_losses() const { return auxiliary_losses_; }

 private:
  TensorId core(TensorId q, TensorId k, TensorId v, std::int64_t heads, std::int64_t kv_heads,
                const AttentionOptions& options);
  TensorId unfused_core(TensorId q, TensorId k, TensorId v, std::int64_t heads, std::int64_t kv_heads,
                        const AttentionOptions& options);
  TensorId rotary(const std::string& name, TensorId x, std::int64_t head_dim, std::int64_t rotary_dim);
  TensorId grouped_query_attention(TensorId x, const AttentionOptions& options);
  TensorId latent_attention(TensorId x, const AttentionOptions& options);
  // A linear, with an adapter beside it where the model has them there.
  TensorId adapted(const std::string& name, TensorId x, std::int64_t out, bool bias, bool has_adapter);
  TensorId activate(const std::string& name, TensorId x);
  TensorId feed_forward(std::int64_t index, TensorId x);

  const TransformerConfig& config_;
  LayerBuilder net_;
  std::vector<TensorId> auxiliary_losses_;
  TensorId alibi_;
};

}  // namespace weft
