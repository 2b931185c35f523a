// Mixtures of experts, and DeepSeek's latent attention.
#include <cmath>

#include "models/zoo.h"

namespace weft {
namespace {

TransformerConfig deepseek(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn,
                           std::int64_t vocab, std::int64_t q_lora, const MoeConfig& moe) {
  TransformerConfig config = llama_like(layers, hidden, heads, heads, ffn, vocab, 163840, 10000);
  config.mla = {.kv_lora = 512, .q_lora = q_lora, .rope = 64, .nope = 128, .value = 128};
  config.moe = moe;
  return config;
}

// GShard-style: every other layer has experts, two per token (Lepikhin et al. 2020).
TransformerConfig gshard(TransformerConfig config, std::int64_t experts) {
  config.moe = {.experts = experts, .top_k = 2, .every = 2, .capacity_factor = 1, .aux_loss = 0.01};
  return config;
}

}  // namespace

std::vector<ZooEntry> mixture_zoo() {
  std::vector<ZooEntry> zoo;
  TransformerConfig mixtral = llama_like(32, 4096, 32, 8, 14336, 32000, 32768, 1'000'000);
  mixtral.moe = {.experts = 8, .top_k = 2};
  zoo.push_back({"mixtral-8x7b", {"mixtral"}, mixtral, "Jiang et al. 2024; checkpoint mistralai/Mixtral-8x7B-v0.1"});
  mixtral = llama_like(56, 6144, 48, 8, 16384, 32000, 65536, 1'000'000);
  mixtral.moe = {.experts = 8, .top_k = 2};
  zoo.push_back({"mixtral-8x22b", {}, mixtral, "checkpoint mistralai/Mixtral-8x22B-v0.1"});

  TransformerConfig qwen = llama_like(48, 2048, 32, 4, 6144, 151936, 40960, 1'000'000);
  qwen.head_dim = 128;
  qwen.qk_norm = true;
  qwen.moe = {.experts = 128, .top_k = 8, .expert_ffn = 768};
  const std::string qwen_source = "Qwen3 technical report 2025, table 2; checkpoints Qwen/Qwen3-*";
  zoo.push_back({"qwen3-30b-a3b", {"qwen3-30b"}, qwen, qwen_source});
  qwen.layers = 94;
  qwen.hidden = 4096;
  qwen.heads = 64;
  qwen.ffn = 12288;
  qwen.moe.expert_ffn = 1536;
  zoo.push_back({"qwen3-235b-a22b", {"qwen3-235b"}, qwen, qwen_source});
  TransformerConfig qwen2 = llama_like(28, 3584, 28, 4, 18944, 151936, 131072, 1'000'000);
  qwen2.qkv_bias = true;
  qwen2.moe = {
      .experts = 64, .top_k = 8, .expert_ffn = 2560, .shared_ffn = 20480, .shared_gate = true, .normalize = false};
  zoo.push_back({"qwen2-57b-a14b", {"qwen2-57b"}, qwen2, "checkpoint Qwen/Qwen2-57B-A14B"});

  const MoeConfig lite{
      .experts = 64, .top_k = 6, .expert_ffn = 1408, .shared_ffn = 2816, .first_dense = 1, .normalize = false};
  zoo.push_back({"deepseek-v2-lite",
                 {},
                 deepseek(27, 2048, 16, 10944, 102400, 0, lite),
                 "DeepSeek-V2 report 2024, appendix B; checkpoint deepseek-ai/DeepSeek-V2-Lite"});
  const MoeConfig v2{.experts = 160,
                     .top_k = 6,
                     .expert_ffn = 1536,
                     .shared_ffn = 3072,
                     .first_dense = 1,
                     .expert_groups = 8,
                     .top_groups = 3,
                     .normalize = false,
                     .scale = 16};
  zoo.push_back({"deepseek-v2",
                 {"deepseek-v2-236b"},
                 deepseek(60, 5120, 128, 12288, 102400, 1536, v2),
                 "DeepSeek-V2 report 2024, section 3.1; checkpoint deepseek-ai/DeepSeek-V2"});
  const MoeConfig v3{.experts = 256,
                     .top_k = 8,
                     .expert_ffn = 2048,
                     .shared_ffn = 2048,
                     .first_dense = 3,
                     .sigmoid_score = true,
                     .expert_groups = 8,
                     .top_groups = 4,
                     .correction_bias = true,
                     .scale = 2.5};
  zoo.push_back({"deepseek-v3",
                 {"deepseek-v3-671b", "deepseek-r1"},
                 deepseek(61, 7168, 128, 18432, 129280, 1536, v3),
                 "DeepSeek-V3 report 2024, section 4.2, without the multi-token-prediction module (mtp=1 adds it)"});
  MoeConfig k2 = v3;
  k2.experts = 384;
  k2.first_dense = 1;
  k2.expert_groups = 1;
  k2.top_groups = 0;
  k2.scale = 2.827;
  TransformerConfig kimi = deepseek(61, 7168, 64, 18432, 163840, 1536, k2);
  kimi.context = 131072;
  kimi.rotary_base = 50000;
  zoo.push_back({"kimi-k2", {"kimi-k2-1t"}, kimi, "Kimi K2 report 2025; checkpoint moonshotai/Kimi-K2-Base"});

  const auto gpt_oss = [](std::int64_t layers, std::int64_t experts) {
    TransformerConfig config = llama_like(layers, 2880, 64, 8, 2880, 201088, 131072, 150'000);
    config.head_dim = 64;
    config.qkv_bias = config.out_bias = true;
    config.window = 128;
    config.full_every = 2;
    config.moe = {.experts = experts, .top_k = 4, .correction_bias = true};
    return config;
  };
  const std::string openai =
      "gpt-oss model card 2025 (arXiv:2508.10925), table 1; checkpoints openai/gpt-oss-*, without the biases of "
      "experts "
      "and the sinks of attention";
  zoo.push_back({"gpt-oss-20b", {}, gpt_oss(24, 32), openai});
  zoo.push_back({"gpt-oss-120b", {}, gpt_oss(36, 128), openai});

  const auto llama4 = [](std::int64_t experts, std::int64_t every, std::int64_t context) {
    TransformerConfig config = llama_like(48, 5120, 40, 8, 16384, 202048, context, 500'000);
    config.window = 8192;
    config.full_every = config.unrotated_every = 4;
    config.moe = {.experts = experts,
                  .top_k = 1,
                  .expert_ffn = 8192,
                  .shared_ffn = 8192,
                  .every = every,
                  .sigmoid_score = true,
                  .normalize = false};
    return config;
  };
  const std::string meta =
      "text part of checkpoints meta-llama/Llama-4-*; attention in chunks of 8,192 as a window of that size";
  zoo.push_back({"llama4-scout", {"llama-4-scout-17b-16e"}, llama4(16, 1, 10'485'760), meta});
  zoo.push_back({"llama4-maverick", {"llama-4-maverick-17b-128e"}, llama4(128, 2, 1'048'576), meta});

  TransformerConfig grok = llama_like(64, 6144, 48, 8, 32768, 131072, 8192, 10000);
  grok.activation = Activation::GeGluTanh;
  grok.post_norms = true;
  grok.tied = true;
  grok.embedding_scale = std::sqrt(6144.0);
  grok.attention_softcap = 30;
  grok.moe = {.experts = 8, .top_k = 2, .normalize = false};
  zoo.push_back({"grok-1", {"grok"}, grok, "model.py and run.py of xai-org/grok-1"});

  const auto gpt_moe = [](std::int64_t layers, std::int64_t hidden, std::int64_t experts) {
    TransformerConfig config{.layers = layers,
                             .hidden = hidden,
                             .heads = 16,
                             .ffn = 8 * hidden,
                             .vocab = 32000,
                             .context = 1024,
                             .norm = Norm::Layer,
                             .activation = Activation::Gelu,
                             .positions = Positions::Learned,
                             .qkv_bias = true,
                             .out_bias = true,
                             .mlp_bias = true,
                             .tied = true};
    return gshard(config, experts);
  };
  const std::string alpa = "Zheng et al. OSDI'22 (Alpa), GShard MoE table; feed-forward 8 × hidden as in its benchmark";
  zoo.push_back({"gpt-moe-380m", {"gshard-moe-380m"}, gpt_moe(8, 768, 8), alpa});
  zoo.push_back({"gpt-moe-1.3b", {"gshard-moe-1.3b"}, gpt_moe(16, 768, 16), alpa});
  zoo.push_back({"gpt-moe-2.4b", {"gshard-moe-2.4b"}, gpt_moe(16, 1024, 16), alpa});
  zoo.push_back({"gpt-moe-10b", {"gshard-moe-10b"}, gpt_moe(16, 1536, 32), alpa});
  zoo.push_back({"gpt-moe-27b", {"gshard-moe-27b"}, gpt_moe(16, 2048, 48), alpa});
  zoo.push_back({"gpt-moe-70b", {"gshard-moe-70b"}, gpt_moe(32, 2048, 64), alpa});

  TransformerConfig bert_moe{.structure = Structure::Encoder,
                             .layers = 8,
                             .hidden = 768,
                             .heads = 12,
                             .vocab = 30522,
                             .context = 128,
                             .norm = Norm::Layer,
                             .activation = Activation::Gelu,
                             .positions = Positions::Learned,
                             .qkv_bias = true,
                             .out_bias = true,
                             .mlp_bias = true,
                             .head_bias = true,
                             .tied = true,
                             .dropout = 0.1};
  zoo.push_back({"bert-moe",
                 {},
                 gshard(bert_moe, 8),
                 "Zhang et al. EuroSys'24 (HAP): 8 layers, hidden 768, sequence 128, every other layer with experts; "
                 "experts=N sets one per device as there"});
  return zoo;
}

}  // namespace weft
