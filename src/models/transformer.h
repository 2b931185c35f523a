// One description of every transformer in the zoo, and the builder that composes its graph.
//
// Decoders (GPT, Llama, mixture of experts, latent attention), encoders (BERT), encoder-decoders (T5) and
// vision transformers differ in fields of one struct, so an override or an imported config.json can reach
// every combination. Projections are fused as training stacks fuse them: query, key and value are one linear
// whose columns are grouped by key/value head; gate and up are one linear. Modules: `embed`, `layers.0` …,
// `head` (T5: `encoder.layers.0` …).
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace weft {

enum class Structure : std::uint8_t {
  Decoder,         // causal language model: next-token loss
  Encoder,         // BERT: masked-token and next-sentence losses, post-norm layers
  EncoderDecoder,  // T5
  Vision,          // ViT: patches and a class token, classification loss
};
enum class Norm : std::uint8_t { Layer, LayerNoBias, Rms };
enum class Activation : std::uint8_t { Gelu, GeluTanh, Relu, Relu2, SwiGlu, GeGlu, GeGluTanh };
enum class Positions : std::uint8_t { Learned, Rotary, Alibi, Relative, None };

inline bool is_gated(Activation activation) { return activation >= Activation::SwiGlu; }

// Mixture of experts: each token passes top_k of `experts` MLPs, and every token the shared one.
struct MoeConfig {
  std::int64_t experts = 0;  // 0: dense
  std::int64_t top_k = 2;
  std::int64_t expert_ffn = 0;   // 0: the dense layers' ffn
  std::int64_t shared_ffn = 0;   // width of all shared experts together; 0: none
  bool shared_gate = false;      // Qwen2-MoE weighs the shared expert by a sigmoid of its own
  std::int64_t first_dense = 0;  // the first layers that stay dense (DeepSeek)
  std::int64_t every = 1;        // every k-th layer has experts, the others are dense (GShard: 2)
  double capacity_factor = 0;  // 0: dropless; else an expert takes ceil(tokens · top_k / experts · factor) of a group
  // Rows on the busiest of the devices that experts are spread over, in the mean of those devices; dropless only. A group
  // of devices goes by its busiest, so the experts of all have rows like that one's. 1: balanced.
  double imbalance = 1;
  // Token groups per sample, each with a capacity of its own: a product, as the sequence is cut over devices.
  std::vector<std::int64_t> groups = {1};
  bool sigmoid_score = false;                      // else softmax
  std::int64_t expert_groups = 1, top_groups = 0;  // experts are chosen within the best groups (DeepSeek); 0: in all
  bool weigh_rows = false;       // routing weights multiply the activation, not the result: the same sum, other traffic
  bool correction_bias = false;  // DeepSeek-V3's per-expert bias for load balance
  bool normalize = true;         // the chosen weights are scaled to sum to one
  double scale = 1;
  double aux_loss = 0;  // coefficient of the load-balancing loss; 0: none

  std::int64_t group_count() const {
    return std::accumulate(groups.begin(), groups.end(), std::int64_t{1}, std::multiplies<>());
  }
  bool operator==(const MoeConfig&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, section 2.1): keys and values come from one small latent vector
// per token.
struct MlaConfig {
  std::int64_t kv_lora = 0;                    // width of the latent vector; 0: ordinary attention
  std::int64_t q_lora = 0;                     // 0: queries are projected directly
  std::int64_t rope = 0, nope = 0, value = 0;  // per head: rotated and unrotated query/key sizes, value size

  bool operator==(const MlaConfig&) const = default;
};

// Low-rank adapters beside linears (Hu et al. 2021): y = x·W + x·A·B·scale, A with `rank` columns.
struct LoraConfig {
  std::int64_t rank = 0;               // 0: none
  bool attention = true, mlp = false;  // beside which linears; those of experts have none

  bool operator==(const LoraConfig&) const = default;
};

struct TransformerConfig {
  Structure structure = Structure::Decoder;
  std::int64_t layers = 0, hidden = 0, heads = 0;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  std::int64_t ffn = 0;       // 0: 4 · hidden
  std::int64_t vocab = 0, context = 0;
  std::int64_t position_rows = 0;  // rows of the learned table; 0: context (OPT has two more)

  Norm norm = Norm::Rms;
  bool pre_norms = true;    // before attention and MLP; false with post_norms: after them only (OLMo-2)
  bool post_norms = false;  // a norm after attention and MLP too, before the residual is added (Gemma-2, Grok-1)
  Activation activation = Activation::SwiGlu;
  Positions positions = Positions::Rotary;
  std::int64_t rotary_dim = 0;  // 0: the whole head
  double rotary_base = 10000;
  bool qkv_bias = false, out_bias = false, mlp_bias = false, head_bias = false;
  bool tied = false;                                // the head multiplies by the embedding table
  bool qk_norm = false;                             // RMS norm of each query and key head (Qwen3)
  bool qk_norm_whole = false;                       // with qk_norm: over all heads at once (OLMo-2)
  bool parallel_residual = false;                   // attention and MLP side by side (NeoX)
  bool shared_norm = false;                         // with parallel_residual: one norm feeds both (Falcon, GPT-J)
  bool embedding_norm = false;                      // BLOOM
  double embedding_scale = 1;                       // Gemma-2 multiplies embeddings by √hidden
  double attention_scale = 0;                       // 0: 1/√head_dim
  double attention_softcap = 0, logit_softcap = 0;  // 0: none
  std::int64_t window = 0;                          // sliding-window attention; 0: full
  std::int64_t full_every = 0;  // with a window: every k-th layer attends in full (Gemma-2: 2, Gemma-3: 6); 0: none
  std::int64_t unrotated_every = 0;  // every k-th layer has no rotary positions (Llama-4: 4); 0: none
  double dropout = 0;                // of embeddings, attention and residuals alike
  std::int64_t zigzag = 1;      // parts over which tokens are in zigzag order (graph/token_order.h); 1: in their own
  bool fused_attention = true;  // false: score and value products, softmax and dropout as operators of their own

  MoeConfig moe = {};
  MlaConfig mla = {};
  std::int64_t mtp = 0;           // modules that predict further tokens, a layer each (DeepSeek-V3 report, section 2.2)
  std::int64_t left_out_mtp = 0;  // modules that a config.json has and that are not built
  bool left_out_images = false;   // so is its encoder of images
  LoraConfig lora = {};

  std::int64_t decoder_layers = 0;                               // EncoderDecoder; 0: layers
  std::int64_t decoder_seq = 0;                                  // EncoderDecoder; 0: seq
  std::int64_t relative_buckets = 32;                            // Positions::Relative
  std::int64_t token_types = 2;                                  // Encoder; 0: no token types
  std::int64_t masked = 0;                                       // Encoder: tokens that are predicted; 0: all of them
  std::int64_t image = 0, patch = 0, channels = 3, classes = 0;  // Vision

  // Fields with 0 for a default, resolved.
  std::int64_t ffn_width() const { return ffn > 0 ? ffn : 4 * hidden; }
  std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::int64_t head_width() const { return head_dim > 0 ? head_dim : heads > 0 ? hidden / heads : 0; }
  bool slides(std::int64_t layer) const { return window > 0 && (full_every == 0 || (layer + 1) % full_every != 0); }
  bool rotates(std::int64_t layer) const {
    return positions == Positions::Rotary && (unrotated_every == 0 || (layer + 1) % unrotated_every != 0);
  }
  bool is_moe_layer(std::int64_t layer) const {
    return moe.experts > 0 && layer >= moe.first_dense && layer % moe.every == moe.every - 1;
  }
  bool operator==(const TransformerConfig&) const = default;
};

// The shape of the input of one micro-batch.
struct StepShape {
  std::int64_t batch = 1;
  std::int64_t seq = 0;  // tokens per sample; unused by models without a sequence
  DType dtype = DType::BF16;
};

// Whether the fields fit together and are sane (a hostile file must not ask for gigabytes). Errors name field
// and value.
Status check(const TransformerConfig& config);

// Adds the model's forward pass and loss; the config must have passed `check`.
void build_transformer(GraphBuilder& builder, const TransformerConfig& config, const StepShape& step);

}  // namespace weft
