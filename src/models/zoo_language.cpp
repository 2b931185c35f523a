// Dense language models: decoders, BERT, T5.
#include <fmt/format.h>

#include <cmath>

#include "models/zoo.h"

namespace weft {

TransformerConfig llama_like(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                             std::int64_t ffn, std::int64_t vocab, std::int64_t context, double rotary_base) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .ffn = ffn,
          .vocab = vocab,
          .context = context,
          .rotary_base = rotary_base};
}

namespace {

using Names = std::vector<std::string>;

// GPT-2 and similar models: learned positions, LayerNorm, biases everywhere, tanh GELU, tied head.
TransformerConfig gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t vocab,
                      std::int64_t context, double dropout = 0.1) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .vocab = vocab,
          .context = context,
          .norm = Norm::Layer,
          .activation = Activation::GeluTanh,
          .positions = Positions::Learned,
          .qkv_bias = true,
          .out_bias = true,
          .mlp_bias = true,
          .tied = true,
          .dropout = dropout};
}

void add_gpt(std::vector<ZooEntry>& zoo) {
  const std::string gpt2 = "Radford et al. 2019; checkpoints openai-community/gpt2*";
  zoo.push_back({"gpt2-124m", {"gpt2", "gpt-2", "gpt2-small", "gpt2-117m"}, gpt(12, 768, 12, 50257, 1024), gpt2});
  zoo.push_back({"gpt2-355m", {"gpt2-medium", "gpt2-345m"}, gpt(24, 1024, 16, 50257, 1024), gpt2});
  zoo.push_back({"gpt2-774m", {"gpt2-large", "gpt2-762m"}, gpt(36, 1280, 20, 50257, 1024), gpt2});
  zoo.push_back(
      {"gpt2-1.5b", {"gpt2-xl", "gpt-1.5b", "gpt2-1558m", "gpt2-1542m"}, gpt(48, 1600, 25, 50257, 1024), gpt2});

  const std::string gpt3 = "Brown et al. 2020, table 2.1; vocabulary of GPT-2";
  zoo.push_back({"gpt3-125m", {"gpt3-small"}, gpt(12, 768, 12, 50257, 2048), gpt3});
  zoo.push_back({"gpt3-350m", {"gpt3-medium"}, gpt(24, 1024, 16, 50257, 2048), gpt3});
  zoo.push_back({"gpt3-760m", {"gpt3-large"}, gpt(24, 1536, 16, 50257, 2048), gpt3});
  zoo.push_back({"gpt3-1.3b",
                 {"gpt3-xl"},
                 gpt(24, 2048, 16, 50257, 2048),
                 gpt3 + " (16 heads of 128; the table's 24 do not divide 2048)"});
  zoo.push_back({"gpt3-2.7b", {}, gpt(32, 2560, 32, 50257, 2048), gpt3});
  zoo.push_back({"gpt3-6.7b", {}, gpt(32, 4096, 32, 50257, 2048), gpt3});
  zoo.push_back(
      {"gpt3-13b", {}, gpt(40, 5120, 40, 50257, 2048), gpt3 + " (5120 = 40 heads of 128; the table prints 5140)"});
  zoo.push_back({"gpt3-175b", {"gpt3", "gpt-3"}, gpt(96, 12288, 96, 50257, 2048), gpt3});

  const std::string sc21 = "Narayanan et al. SC'21, table 1; vocabulary 51,200, sequence 2,048";
  const std::string mlsys23 = "Korthikanti et al. MLSys'23, table 3; vocabulary 51,200, sequence 2,048";
  zoo.push_back({"megatron-1.7b", {}, gpt(24, 2304, 24, 51200, 2048), sc21});
  zoo.push_back({"megatron-3.6b", {}, gpt(30, 3072, 32, 51200, 2048), sc21});
  zoo.push_back({"megatron-7.5b", {}, gpt(36, 4096, 32, 51200, 2048), sc21});
  zoo.push_back({"megatron-18.4b", {"megatron-18b"}, gpt(40, 6144, 48, 51200, 2048), sc21});
  zoo.push_back({"megatron-22b", {}, gpt(48, 6144, 64, 51200, 2048), mlsys23});
  zoo.push_back({"megatron-39.1b", {"megatron-39b"}, gpt(48, 8192, 64, 51200, 2048), sc21});
  zoo.push_back({"megatron-76.1b", {"megatron-76b"}, gpt(60, 10240, 80, 51200, 2048), sc21});
  zoo.push_back({"megatron-145.6b", {"megatron-145b", "megatron-146b"}, gpt(80, 12288, 96, 51200, 2048), sc21});
  zoo.push_back({"megatron-175b", {}, gpt(96, 12288, 96, 51200, 2048), mlsys23});
  zoo.push_back({"megatron-310b", {"megatron-310.1b"}, gpt(96, 16384, 128, 51200, 2048), sc21});
  zoo.push_back({"megatron-530b",
                 {"megatron-529.6b", "mt-nlg-530b", "megatron-turing-530b", "mt-nlg"},
                 gpt(105, 20480, 128, 51200, 2048),
                 sc21});
  zoo.push_back({"megatron-1t", {"megatron-1008b", "megatron-1000b"}, gpt(128, 25600, 160, 51200, 2048), sc21});

  TransformerConfig bloom = gpt(70, 14336, 112, 250880, 2048, 0);
  bloom.positions = Positions::Alibi;
  bloom.embedding_norm = true;
  zoo.push_back({"bloom-176b", {"bloom"}, bloom, "checkpoint bigscience/bloom"});

  TransformerConfig opt = gpt(96, 12288, 96, 50272, 2048);
  opt.position_rows = 2050;
  opt.activation = Activation::Relu;
  zoo.push_back({"opt-175b", {}, opt, "Zhang et al. 2022, table 1; vocabulary and positions as in facebook/opt-66b"});
  opt = gpt(64, 9216, 72, 50272, 2048);
  opt.position_rows = 2050;
  opt.activation = Activation::Relu;
  zoo.push_back({"opt-66b", {}, opt, "checkpoint facebook/opt-66b"});

  TransformerConfig neox = gpt(44, 6144, 64, 50432, 2048, 0);
  neox.positions = Positions::Rotary;
  neox.rotary_dim = 24;  // a quarter of the head
  neox.parallel_residual = true;
  neox.tied = false;
  zoo.push_back({"gpt-neox-20b", {"neox-20b"}, neox, "checkpoint EleutherAI/gpt-neox-20b"});
}

void add_mpt(std::vector<ZooEntry>& zoo) {
  const auto yaml = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
    TransformerConfig config = gpt(layers, hidden, heads, 50368, 2048, 0);
    config.activation = Activation::Gelu;
    return config;
  };
  const auto published = [&](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t context) {
    TransformerConfig config = yaml(layers, hidden, heads);
    config.vocab = 50432;
    config.context = context;
    config.norm = Norm::LayerNoBias;
    config.positions = Positions::Alibi;
    config.qkv_bias = config.out_bias = config.mlp_bias = false;
    return config;
  };
  const std::string source = "llm-foundry's pretraining yaml: learned positions and biases";
  zoo.push_back({"mpt-125m", {}, yaml(12, 768, 12), source});
  zoo.push_back({"mpt-350m", {}, yaml(24, 1024, 16), source});
  zoo.push_back({"mpt-760m", {}, yaml(24, 1536, 12), source});
  zoo.push_back({"mpt-1b", {}, yaml(24, 2048, 16), source});
  zoo.push_back({"mpt-3b", {}, yaml(32, 2560, 20), source});
  zoo.push_back({"mpt-7b", {}, published(32, 4096, 32, 2048), "checkpoint mosaicml/mpt-7b: ALiBi, no biases"});
  zoo.push_back({"mpt-13b", {}, yaml(40, 5120, 40), source});
  zoo.push_back({"mpt-30b", {}, published(48, 7168, 64, 8192), "checkpoint mosaicml/mpt-30b: ALiBi, no biases"});
  zoo.push_back({"mpt-70b", {}, yaml(80, 8192, 64), source});
}

void add_llama(std::vector<ZooEntry>& zoo) {
  const std::string llama2 = "Touvron et al. 2023; checkpoints meta-llama/Llama-2-*";
  zoo.push_back({"llama2-7b", {}, llama_like(32, 4096, 32, 32, 11008, 32000, 4096), llama2});
  zoo.push_back({"llama2-13b", {}, llama_like(40, 5120, 40, 40, 13824, 32000, 4096), llama2});
  zoo.push_back({"llama2-70b", {}, llama_like(80, 8192, 64, 8, 28672, 32000, 4096), llama2});
  const std::string llama3 = "Dubey et al. 2024, table 3; checkpoints meta-llama/*";
  zoo.push_back({"llama3-8b", {"meta-llama-3-8b"}, llama_like(32, 4096, 32, 8, 14336, 128256, 8192, 500000), llama3});
  zoo.push_back({"llama3-70b", {"meta-llama-3-70b"}, llama_like(80, 8192, 64, 8, 28672, 128256, 8192, 500000), llama3});
  zoo.push_back({"llama3.1-8b", {}, llama_like(32, 4096, 32, 8, 14336, 128256, 131072, 500000), llama3});
  zoo.push_back({"llama3.1-70b", {"llama3.3-70b"}, llama_like(80, 8192, 64, 8, 28672, 128256, 131072, 500000), llama3});
  zoo.push_back(
      {"llama3.1-405b", {"llama3-405b"}, llama_like(126, 16384, 128, 8, 53248, 128256, 131072, 500000), llama3});
  TransformerConfig small = llama_like(16, 2048, 32, 8, 8192, 128256, 131072, 500000);
  small.tied = true;
  zoo.push_back({"llama3.2-1b", {}, small, "checkpoint meta-llama/Llama-3.2-1B"});
  small = llama_like(28, 3072, 24, 8, 8192, 128256, 131072, 500000);
  small.tied = true;
  zoo.push_back({"llama3.2-3b", {}, small, "checkpoint meta-llama/Llama-3.2-3B"});

  TransformerConfig mistral = llama_like(32, 4096, 32, 8, 14336, 32000, 32768);
  mistral.window = 4096;
  zoo.push_back({"mistral-7b", {"mistral-7b-v0.1"}, mistral, "checkpoint mistralai/Mistral-7B-v0.1"});
}

void add_qwen(std::vector<ZooEntry>& zoo) {
  const auto qwen2 = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                        std::int64_t ffn, std::int64_t vocab, std::int64_t context, bool tied) {
    TransformerConfig config = llama_like(layers, hidden, heads, kv_heads, ffn, vocab, context, 1'000'000);
    config.qkv_bias = true;
    config.tied = tied;
    return config;
  };
  const std::string source2 = "checkpoints Qwen/Qwen2-*", source25 = "checkpoints Qwen/Qwen2.5-*";
  zoo.push_back({"qwen2-0.5b", {}, qwen2(24, 896, 14, 2, 4864, 151936, 131072, true), source2});
  zoo.push_back({"qwen2-1.5b", {}, qwen2(28, 1536, 12, 2, 8960, 151936, 131072, true), source2});
  zoo.push_back({"qwen2-7b", {}, qwen2(28, 3584, 28, 4, 18944, 152064, 131072, false), source2});
  zoo.push_back({"qwen2-72b", {}, qwen2(80, 8192, 64, 8, 29568, 152064, 131072, false), source2});
  zoo.push_back({"qwen2.5-0.5b", {}, qwen2(24, 896, 14, 2, 4864, 151936, 32768, true), source25});
  zoo.push_back({"qwen2.5-1.5b", {}, qwen2(28, 1536, 12, 2, 8960, 151936, 131072, true), source25});
  zoo.push_back({"qwen2.5-3b", {}, qwen2(36, 2048, 16, 2, 11008, 151936, 32768, true), source25});
  zoo.push_back({"qwen2.5-7b", {}, qwen2(28, 3584, 28, 4, 18944, 152064, 131072, false), source25});
  zoo.push_back({"qwen2.5-14b", {}, qwen2(48, 5120, 40, 8, 13824, 152064, 131072, false), source25});
  zoo.push_back({"qwen2.5-32b", {}, qwen2(64, 5120, 40, 8, 27648, 152064, 131072, false), source25});
  zoo.push_back({"qwen2.5-72b", {}, qwen2(80, 8192, 64, 8, 29568, 152064, 131072, false), source25});

  const auto qwen3 = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn, bool tied) {
    TransformerConfig config = llama_like(layers, hidden, heads, 8, ffn, 151936, 40960, 1'000'000);
    config.head_dim = 128;
    config.qk_norm = true;
    config.tied = tied;
    return config;
  };
  const std::string source3 = "Qwen3 technical report 2025, table 1; checkpoints Qwen/Qwen3-*";
  zoo.push_back({"qwen3-0.6b", {}, qwen3(28, 1024, 16, 3072, true), source3});
  zoo.push_back({"qwen3-1.7b", {}, qwen3(28, 2048, 16, 6144, true), source3});
  zoo.push_back({"qwen3-4b", {}, qwen3(36, 2560, 32, 9728, true), source3});
  zoo.push_back({"qwen3-8b", {}, qwen3(36, 4096, 32, 12288, false), source3});
  zoo.push_back({"qwen3-14b", {}, qwen3(40, 5120, 40, 17408, false), source3});
  zoo.push_back({"qwen3-32b", {}, qwen3(64, 5120, 64, 25600, false), source3});
}

void add_gemma_and_nemotron(std::vector<ZooEntry>& zoo) {
  const auto gemma2 = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                         std::int64_t head_dim, std::int64_t ffn, double query_scalar) {
    TransformerConfig config = llama_like(layers, hidden, heads, kv_heads, ffn, 256000, 8192);
    config.head_dim = head_dim;
    config.activation = Activation::GeGluTanh;
    config.post_norms = true;
    config.tied = true;
    config.embedding_scale = std::sqrt(static_cast<double>(hidden));
    config.attention_scale = 1 / std::sqrt(query_scalar);
    config.attention_softcap = 50;
    config.logit_softcap = 30;
    config.window = 4096;
    config.full_every = 2;
    return config;
  };
  const std::string gemma = "Gemma 2 report 2024, table 1; checkpoints google/gemma-2-*";
  zoo.push_back({"gemma-2-2b", {}, gemma2(26, 2304, 8, 4, 256, 9216, 256), gemma});
  zoo.push_back({"gemma-2-9b", {}, gemma2(42, 3584, 16, 8, 256, 14336, 256), gemma});
  zoo.push_back({"gemma-2-27b", {}, gemma2(46, 4608, 32, 16, 128, 36864, 144), gemma});

  const auto nemotron4 = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn) {
    TransformerConfig config = llama_like(layers, hidden, heads, 8, ffn, 256000, 4096);
    config.norm = Norm::Layer;
    config.activation = Activation::Relu2;
    config.rotary_dim = hidden / heads / 2;
    return config;
  };
  zoo.push_back(
      {"nemotron-4-15b", {}, nemotron4(32, 6144, 48, 24576), "Parmar et al. 2024 (arXiv:2402.16819), table 1"});
  zoo.push_back({"nemotron-4-340b",
                 {},
                 nemotron4(96, 18432, 96, 73728),
                 "Nemotron-4 340B report 2024 (arXiv:2406.11704), table 1"});
}

void add_of_2024_and_2025(std::vector<ZooEntry>& zoo) {
  TransformerConfig phi = llama_like(32, 3072, 32, 32, 8192, 32064, 4096);
  phi.window = 2047;
  zoo.push_back({"phi-3-mini", {"phi3-mini", "phi-3-mini-4k"}, phi, "checkpoint microsoft/Phi-3-mini-4k-instruct"});
  phi = llama_like(40, 5120, 40, 10, 17920, 32064, 4096);
  phi.window = 2047;
  zoo.push_back({"phi-3-medium", {"phi3-medium"}, phi, "checkpoint microsoft/Phi-3-medium-4k-instruct"});
  phi = llama_like(40, 5120, 40, 10, 17920, 100352, 16384, 250'000);
  zoo.push_back({"phi-4", {"phi4", "phi-4-14b"}, phi, "Phi-4 report 2024; checkpoint microsoft/phi-4"});

  const auto olmo2 = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                        std::int64_t ffn) {
    TransformerConfig config = llama_like(layers, hidden, heads, kv_heads, ffn, 100352, 4096, 500'000);
    config.pre_norms = false;
    config.post_norms = true;
    config.qk_norm = config.qk_norm_whole = true;
    return config;
  };
  const std::string olmo = "OLMo 2 report 2025 (arXiv:2501.00656), table 1; checkpoints allenai/OLMo-2-*";
  zoo.push_back({"olmo-2-7b", {"olmo2-7b"}, olmo2(32, 4096, 32, 32, 11008), olmo});
  zoo.push_back({"olmo-2-13b", {"olmo2-13b"}, olmo2(40, 5120, 40, 40, 13824), olmo});
  zoo.push_back({"olmo-2-32b", {"olmo2-32b"}, olmo2(64, 5120, 40, 8, 27648), olmo});

  const auto gemma3 = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                         std::int64_t head_dim, std::int64_t ffn, std::int64_t vocab, std::int64_t window,
                         std::int64_t context, double query_scalar) {
    TransformerConfig config = llama_like(layers, hidden, heads, kv_heads, ffn, vocab, context, 1'000'000);
    config.head_dim = head_dim;
    config.activation = Activation::GeGluTanh;
    config.post_norms = config.qk_norm = config.tied = true;
    config.embedding_scale = std::sqrt(static_cast<double>(hidden));
    config.attention_scale = 1 / std::sqrt(query_scalar);
    config.window = window;
    config.full_every = 6;
    return config;
  };
  const std::string gemma = "Gemma 3 report 2025 (arXiv:2503.19786); text part of checkpoints google/gemma-3-*";
  zoo.push_back({"gemma-3-1b", {"gemma3-1b"}, gemma3(26, 1152, 4, 1, 256, 6912, 262144, 512, 32768, 256), gemma});
  zoo.push_back({"gemma-3-4b", {"gemma3-4b"}, gemma3(34, 2560, 8, 4, 256, 10240, 262208, 1024, 131072, 256), gemma});
  zoo.push_back({"gemma-3-12b", {"gemma3-12b"}, gemma3(48, 3840, 16, 8, 256, 15360, 262208, 1024, 131072, 256), gemma});
  zoo.push_back(
      {"gemma-3-27b", {"gemma3-27b"}, gemma3(62, 5376, 32, 16, 128, 21504, 262208, 1024, 131072, 168), gemma});

  const auto falcon = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads) {
    TransformerConfig config = gpt(layers, hidden, heads, 65024, 2048, 0);
    config.kv_heads = kv_heads;
    config.activation = Activation::Gelu;
    config.positions = Positions::Rotary;
    config.qkv_bias = config.out_bias = config.mlp_bias = false;
    config.parallel_residual = true;
    config.shared_norm = kv_heads == 1;
    return config;
  };
  const std::string tii = "Almazrouei et al. 2023 (arXiv:2311.16867); checkpoints tiiuae/falcon-*";
  zoo.push_back({"falcon-7b", {}, falcon(32, 4544, 71, 1), tii});
  zoo.push_back({"falcon-40b", {}, falcon(60, 8192, 128, 8), tii});
  zoo.push_back({"falcon-180b", {}, falcon(80, 14848, 232, 8), tii});

  const auto starcoder2 = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                             std::int64_t ffn, double rotary_base) {
    TransformerConfig config = gpt(layers, hidden, heads, 49152, 16384, 0.1);
    config.kv_heads = kv_heads;
    config.ffn = ffn;
    config.positions = Positions::Rotary;
    config.rotary_base = rotary_base;
    config.window = 4096;
    return config;
  };
  const std::string bigcode = "Lozhkov et al. 2024 (arXiv:2402.19173), table 6; checkpoints bigcode/starcoder2-*";
  zoo.push_back({"starcoder2-3b", {}, starcoder2(30, 3072, 24, 2, 12288, 999'999.442), bigcode});
  zoo.push_back({"starcoder2-7b", {}, starcoder2(32, 4608, 36, 4, 18432, 1'000'000), bigcode});
  TransformerConfig largest = starcoder2(40, 6144, 48, 4, 24576, 100'000);
  largest.tied = false;
  zoo.push_back({"starcoder2-15b", {}, largest, bigcode});
}

void add_bert_and_t5(std::vector<ZooEntry>& zoo) {
  const auto bert = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
    TransformerConfig config = gpt(layers, hidden, heads, 30522, 512);
    config.structure = Structure::Encoder;
    config.activation = Activation::Gelu;
    config.head_bias = true;
    return config;
  };
  const std::string source = "Devlin et al. 2018; checkpoints google-bert/bert-*-uncased with both pre-training heads";
  zoo.push_back({"bert-base", {"bert", "bert-base-uncased"}, bert(12, 768, 12), source});
  zoo.push_back({"bert-large", {"bert-large-uncased"}, bert(24, 1024, 16), source});
  zoo.push_back({"bert-exlarge",
                 {"bert-48", "bert-exlarge-48"},
                 bert(48, 1024, 16),
                 "BERT-large with 48 layers: Lu et al. CF'23 (DistSim), section 5"});

  const auto t5 = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t head_dim,
                     std::int64_t ffn) {
    return TransformerConfig{.structure = Structure::EncoderDecoder,
                             .layers = layers,
                             .hidden = hidden,
                             .heads = heads,
                             .head_dim = head_dim,
                             .ffn = ffn,
                             .vocab = 32128,
                             .context = 512,
                             .activation = Activation::Relu,
                             .positions = Positions::Relative,
                             .tied = true,
                             .attention_scale = 1,  // T5 folds 1/√d into its initialisation
                             .dropout = 0.1,
                             .fused_attention = false};
  };
  const std::string raffel = "Raffel et al. 2020; checkpoints google-t5/t5-*";
  zoo.push_back({"t5-small", {}, t5(6, 512, 8, 64, 2048), raffel});
  zoo.push_back({"t5-base", {"t5"}, t5(12, 768, 12, 64, 3072), raffel});
  zoo.push_back({"t5-large", {}, t5(24, 1024, 16, 64, 4096), raffel});
  zoo.push_back({"t5-3b", {}, t5(24, 1024, 32, 128, 16384), raffel});
  zoo.push_back({"t5-11b", {}, t5(24, 1024, 128, 128, 65536), raffel});
}

}  // namespace

std::vector<ZooEntry> language_zoo() {
  std::vector<ZooEntry> zoo;
  add_gpt(zoo);
  add_mpt(zoo);
  add_llama(zoo);
  add_qwen(zoo);
  add_gemma_and_nemotron(zoo);
  add_of_2024_and_2025(zoo);
  add_bert_and_t5(zoo);
  return zoo;
}

}  // namespace weft
