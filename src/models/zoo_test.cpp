// Every model of the zoo against published figures.
#include "models/zoo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <set>

#include "graph/text.h"
#include "graph/training.h"
#include "models/models.h"
#include "models/summary.h"

namespace weft {
namespace {

struct Published {
  const char* name;
  double parameters;
  double digit;  // the last printed digit's unit; 0: the count is exact
  const char* source;
};

constexpr double kMillion = 1e6, kBillion = 1e9;

const Published kPublished[] = {
    {"lenet", 61'706, 0, "the usual LeNet-5: 156 + 2,416 + 48,120 + 10,164 + 850"},
    {"alexnet", 61'100'840, 0, "torchvision"},
    {"vgg16", 138'357'544, 0, "torchvision"},
    {"vgg19", 143'667'240, 0, "torchvision"},
    {"resnet18", 11'689'512, 0, "torchvision"},
    {"resnet34", 21'797'672, 0, "torchvision"},
    {"resnet50", 25'557'032, 0, "torchvision"},
    {"resnet101", 44'549'160, 0, "torchvision"},
    {"resnet152", 60'192'808, 0, "torchvision"},
    {"wide-resnet50-2", 68'883'240, 0, "torchvision"},
    {"inception-v3", 23'834'568, 0, "torchvision's 27,161,264 less the auxiliary classifier's 3,326,696"},
    {"inception-v3:aux=1", 27'161'264, 0, "torchvision"},
    {"vit-b", 86'567'656, 0, "torchvision vit_b_16"},
    {"vit-l", 304'326'632, 0, "torchvision vit_l_16"},
    {"vit-h", 632'045'800, 0, "torchvision vit_h_14"},
    // No counts are published for the three: 4·(h² + h²) + 4h per LSTM layer with h inputs, tables V·h, heads
    // h·V + V.
    {"rnntc", 20'000 * 1024.0 + 4 * (8 * 1024.0 * 1024 + 4096) + 2 * 1024 + 2, 0, "closed form"},
    {"rnnlm", 10'000 * 2048.0 + 2 * (8 * 2048.0 * 2048 + 8192) + 2048 * 10'000.0 + 10'000, 0, "closed form"},
    {"nmt", 2 * 32'000 * 1024.0 + 4 * (8 * 1024.0 * 1024 + 4096) + 2 * 1024 * 1024.0 + 1024 * 32'000.0 + 32'000, 0,
     "closed form; attention combines 2h → h without bias"},
    {"dlrm", 516 * kMillion, kMillion, "Duan et al. TPDS'24: 516M"},
    // 187,767,399 rows of 128, and the MLPs: 155,520 at the bottom; at the top 128 + 27·26/2 = 479 features.
    {"dlrm-mlperf",
     187'767'399 * 128.0 + (13 * 512 + 512) + (512 * 256 + 256) + (256 * 128 + 128) + (479 * 1024 + 1024) +
         (1024 * 1024 + 1024) + (1024 * 512 + 512) + (512 * 256 + 256) + 257,
     0, "closed form over MLPerf's table sizes"},
    {"gpt2-124m", 124'439'808, 0, "openai-community/gpt2"},
    {"gpt2-355m", 354'823'168, 0, "openai-community/gpt2-medium"},
    {"gpt2-774m", 774'030'080, 0, "openai-community/gpt2-large"},
    {"gpt2-1.5b", 1'557'611'200, 0, "openai-community/gpt2-xl"},
    {"gpt3-125m", 125 * kMillion, kMillion, "Brown et al. 2020, table 2.1"},
    {"gpt3-350m", 356 * kMillion, 6 * kMillion, "Brown et al. 2020, table 2.1: 350M, with the table's shapes 356M"},
    {"gpt3-760m", 760 * kMillion, kMillion, "Brown et al. 2020, table 2.1"},
    {"gpt3-1.3b", 1.3 * kBillion, 0.1 * kBillion, "Brown et al. 2020, table 2.1"},
    {"gpt3-2.7b", 2.7 * kBillion, 0.1 * kBillion, "Brown et al. 2020, table 2.1"},
    {"gpt3-6.7b", 6.7 * kBillion, 0.1 * kBillion, "Brown et al. 2020, table 2.1"},
    {"gpt3-13b", 13.0 * kBillion, 0.15 * kBillion, "Brown et al. 2020, table 2.1: 13.0B with a width of 5140"},
    {"gpt3-175b", 175 * kBillion, kBillion, "Brown et al. 2020, table 2.1"},
    {"megatron-1.7b", 1.7 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"megatron-3.6b", 3.6 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"megatron-7.5b", 7.5 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"megatron-18.4b", 18.4 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"megatron-22b", 22 * kBillion, kBillion, "Korthikanti et al. MLSys'23, table 3"},
    {"megatron-39.1b", 39.1 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"megatron-76.1b", 76.1 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"megatron-145.6b", 145.6 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"megatron-175b", 175 * kBillion, kBillion, "Korthikanti et al. MLSys'23, table 3"},
    {"megatron-310b", 310.1 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"megatron-530b", 529.6 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"megatron-1t", 1008.0 * kBillion, 0.1 * kBillion, "Narayanan et al. SC'21, table 1"},
    {"bloom-176b", 176'247'271'424, 0, "bigscience/bloom"},
    {"opt-66b", 65'719'701'504, 0, "facebook/opt-66b by its config: V·h + 2050·h + L(12h² + 13h) + 2h"},
    {"opt-175b", 175 * kBillion, kBillion, "Zhang et al. 2022, table 1"},
    {"gpt-neox-20b", 20'554'567'680, 0, "EleutherAI/gpt-neox-20b"},
    // V·d + s·d + 12·L·d² + 9·L·d + 2(2L+1)·d, the sizes' names rounded generously.
    {"mpt-125m", 50'368 * 768.0 + 2048 * 768.0 + 12 * 12 * 768.0 * 768 + 9 * 12 * 768 + 2 * 25 * 768, 0,
     "llm-foundry's yaml"},
    {"mpt-350m", 50'368 * 1024.0 + 2048 * 1024.0 + 12 * 24 * 1024.0 * 1024 + 9 * 24 * 1024 + 2 * 49 * 1024, 0,
     "llm-foundry's yaml"},
    {"mpt-760m", 50'368 * 1536.0 + 2048 * 1536.0 + 12 * 24 * 1536.0 * 1536 + 9 * 24 * 1536 + 2 * 49 * 1536, 0,
     "llm-foundry's yaml"},
    {"mpt-1b", 50'368 * 2048.0 + 2048 * 2048.0 + 12 * 24 * 2048.0 * 2048 + 9 * 24 * 2048 + 2 * 49 * 2048, 0,
     "llm-foundry's yaml"},
    {"mpt-3b", 50'368 * 2560.0 + 2048 * 2560.0 + 12 * 32 * 2560.0 * 2560 + 9 * 32 * 2560 + 2 * 65 * 2560, 0,
     "llm-foundry's yaml"},
    {"mpt-7b", 6'649'286'656, 0, "mosaicml/mpt-7b"},
    {"mpt-7b:bias=1,positions=learned",
     50'432 * 4096.0 + 2048 * 4096.0 + 12 * 32 * 4096.0 * 4096 + 9 * 32 * 4096 + 2 * 65 * 4096, 0,
     "llm-foundry's benchmark"},
    {"mpt-13b", 50'368 * 5120.0 + 2048 * 5120.0 + 12 * 40 * 5120.0 * 5120 + 9 * 40 * 5120 + 2 * 81 * 5120, 0,
     "llm-foundry's yaml"},
    {"mpt-30b", 50'432 * 7168.0 + 12 * 48 * 7168.0 * 7168 + 97 * 7168, 0,
     "mosaicml/mpt-30b by its config: V·d + 12·L·d² + (2L+1)·d"},
    {"mpt-70b", 50'368 * 8192.0 + 2048 * 8192.0 + 12 * 80 * 8192.0 * 8192 + 9 * 80 * 8192 + 2 * 161 * 8192, 0,
     "llm-foundry's yaml"},
    {"llama2-7b", 6'738'415'616, 0, "meta-llama/Llama-2-7b-hf"},
    {"llama2-13b", 13'015'864'320, 0, "meta-llama/Llama-2-13b-hf"},
    {"llama2-70b", 68'976'648'192, 0, "meta-llama/Llama-2-70b-hf"},
    {"llama3-8b", 8'030'261'248, 0, "meta-llama/Meta-Llama-3-8B"},
    {"llama3-70b", 70'553'706'496, 0, "meta-llama/Meta-Llama-3-70B"},
    {"llama3.1-8b", 8'030'261'248, 0, "meta-llama/Llama-3.1-8B"},
    {"llama3.1-70b", 70'553'706'496, 0, "meta-llama/Llama-3.1-70B"},
    {"llama3.1-405b", 405'853'388'800, 0, "meta-llama/Llama-3.1-405B"},
    {"llama3.2-1b", 1'235'814'400, 0, "meta-llama/Llama-3.2-1B"},
    {"llama3.2-3b", 3'212'749'824, 0, "meta-llama/Llama-3.2-3B"},
    {"mistral-7b", 7'241'732'096, 0, "mistralai/Mistral-7B-v0.1"},
    {"phi-3-mini", 3'821'079'552, 0, "microsoft/Phi-3-mini-4k-instruct"},
    {"phi-3-medium", 13'960'238'080, 0, "microsoft/Phi-3-medium-4k-instruct"},
    {"phi-4", 14'659'507'200, 0, "microsoft/phi-4"},
    // V·h twice, L(4h² + 3·h·ffn + 4h), h: with two norms after the blocks and one each of queries and keys.
    {"olmo-2-7b", 2 * 100'352 * 4096.0 + 32 * (4 * 4096.0 * 4096 + 3 * 4096.0 * 11008 + 4 * 4096) + 4096, 0,
     "allenai/OLMo-2-1124-7B by its config: 7.3B"},
    {"olmo-2-13b", 13.7 * kBillion, 0.1 * kBillion, "allenai/OLMo-2-1124-13B"},
    {"olmo-2-32b", 32.2 * kBillion, 0.1 * kBillion, "allenai/OLMo-2-0325-32B"},
    {"gemma-3-1b", 999'885'952, 0, "google/gemma-3-1b-pt"},
    // Gemma 3 report, table 1: embedding and other parameters.
    {"gemma-3-4b", (675 + 3209) * kMillion, 5 * kMillion, "Gemma 3 report, table 1"},
    {"gemma-3-12b", (1012 + 10759) * kMillion, 10 * kMillion, "Gemma 3 report, table 1"},
    {"gemma-3-27b", (1416 + 25600) * kMillion, 15 * kMillion, "Gemma 3 report, table 1"},
    {"falcon-7b", 6'921'720'704, 0, "tiiuae/falcon-7b"},
    {"falcon-40b", 41'303'293'952, 0, "tiiuae/falcon-40b, without the copy of the tied head"},
    {"falcon-180b", 178'557'088'768, 0, "tiiuae/falcon-180B, without the copy of the tied head"},
    {"starcoder2-3b", 3'030'371'328, 0, "bigcode/starcoder2-3b"},
    {"starcoder2-7b", 7'173'923'840, 0, "bigcode/starcoder2-7b"},
    {"starcoder2-15b", 15'957'889'024, 0, "bigcode/starcoder2-15b"},
    {"kimi-k2", 1.04e12, 0.02e12, "Kimi K2 report: 1.04 trillion"},
    // Less 36·(128·(5760 + 2880) + 64) and 24·(32·8640 + 64): biases of experts and sinks.
    {"gpt-oss-120b", 116'829'156'672 - 36 * (128 * 8640.0 + 64), 0, "openai/gpt-oss-120b: 116.83B"},
    {"gpt-oss-20b", 20'914'757'184 - 24 * (32 * 8640.0 + 64), 0, "openai/gpt-oss-20b: 20.91B"},
    {"llama4-scout", 107'769'861'120, 0, "meta-llama/Llama-4-Scout-17B-16E: the text part"},
    {"llama4-maverick", 400.7 * kBillion, 0.1 * kBillion, "meta-llama/Llama-4-Maverick-17B-128E: the text part"},
    // The report gives 14B for the module with copies of embedding and head, 2 · 129,280 · 7168, of its own.
    {"deepseek-v3:mtp=1", 671.0 * kBillion + 14 * kBillion - 2 * 129'280 * 7168.0, kBillion,
     "deepseek-ai/DeepSeek-V3: 685B with the module's 14B"},
    {"qwen2-0.5b", 494'032'768, 0, "Qwen/Qwen2-0.5B"},
    {"qwen2-1.5b", 1'543'714'304, 0, "Qwen/Qwen2-1.5B"},
    {"qwen2-7b", 7'615'616'512, 0, "Qwen/Qwen2-7B"},
    {"qwen2-72b", 72'706'203'648, 0, "Qwen/Qwen2-72B"},
    {"qwen2.5-0.5b", 494'032'768, 0, "Qwen/Qwen2.5-0.5B"},
    {"qwen2.5-1.5b", 1'543'714'304, 0, "Qwen/Qwen2.5-1.5B"},
    {"qwen2.5-3b", 3'085'938'688, 0, "Qwen/Qwen2.5-3B"},
    {"qwen2.5-7b", 7'615'616'512, 0, "Qwen/Qwen2.5-7B"},
    {"qwen2.5-14b", 14'770'033'664, 0, "Qwen/Qwen2.5-14B"},
    {"qwen2.5-32b", 32'763'876'352, 0, "Qwen/Qwen2.5-32B"},
    {"qwen2.5-72b", 72'706'203'648, 0, "Qwen/Qwen2.5-72B"},
    {"qwen3-0.6b", 596'049'920, 0, "Qwen/Qwen3-0.6B, the tied head once"},
    {"qwen3-1.7b", 1'720'574'976, 0, "Qwen/Qwen3-1.7B, the tied head once"},
    {"qwen3-4b", 4'022'468'096, 0, "Qwen/Qwen3-4B"},
    {"qwen3-8b", 8'190'735'360, 0, "Qwen/Qwen3-8B"},
    {"qwen3-14b", 14'768'307'200, 0, "Qwen/Qwen3-14B"},
    {"qwen3-32b", 32'762'123'264, 0, "Qwen/Qwen3-32B"},
    {"gemma-2-2b", 2'614'341'888, 0, "google/gemma-2-2b"},
    {"gemma-2-9b", 9'241'705'984, 0, "google/gemma-2-9b"},
    {"gemma-2-27b", 27'227'128'320, 0, "google/gemma-2-27b"},
    {"nemotron-4-15b", 15.6 * kBillion, 0.1 * kBillion, "arXiv:2402.16819: 12.5 B and 3.1 B of embeddings"},
    {"nemotron-4-340b", 341.0 * kBillion, 0.1 * kBillion, "arXiv:2406.11704: 331.6 B and 9.4 B of embeddings"},
    {"bert-base", 110'106'428, 0, "BertForPreTraining of google-bert/bert-base-uncased"},
    {"bert-large", 336'226'108, 0, "BertForPreTraining of google-bert/bert-large-uncased"},
    {"bert-exlarge", 336'226'108 + 24 * (12 * 1024.0 * 1024 + 13 * 1024), 0, "bert-large and 24 layers more"},
    {"t5-small", 60'506'624, 0, "google-t5/t5-small"},
    {"t5-base", 222'903'552, 0, "google-t5/t5-base"},
    {"t5-large", 737'668'096, 0, "google-t5/t5-large"},
    {"t5-3b", 2'851'598'336, 0, "google-t5/t5-3b"},
    {"t5-11b", 11'307'321'344, 0, "google-t5/t5-11b"},
    {"mixtral-8x7b", 46'702'792'704, 0, "mistralai/Mixtral-8x7B-v0.1"},
    {"mixtral-8x22b", 140'620'634'112, 0, "mistralai/Mixtral-8x22B-v0.1"},
    {"qwen3-30b-a3b", 30'532'122'624, 0, "Qwen/Qwen3-30B-A3B"},
    {"qwen3-235b-a22b", 235'093'634'560, 0, "Qwen/Qwen3-235B-A22B"},
    {"qwen2-57b-a14b", 57.41 * kBillion, 0.01 * kBillion, "Qwen2 technical report 2024: 57.41B"},
    {"deepseek-v2-lite", 15'706'484'224, 0, "deepseek-ai/DeepSeek-V2-Lite"},
    {"deepseek-v2", 235'741'434'880, 0, "deepseek-ai/DeepSeek-V2"},
    {"deepseek-v3", 671'026'419'200, 0, "deepseek-ai/DeepSeek-V3 without its multi-token-prediction layer"},
    // Announced as 314 B, which is the count without the embedding table (805 M), truncated.
    {"grok-1", 314.87 * kBillion + 131'072 * 6144.0, 0.01 * kBillion, "xai-org/grok-1, shapes of its run.py"},
    {"gpt-moe-380m", 380 * kMillion, 10 * kMillion, "Zheng et al. OSDI'22"},
    {"gpt-moe-1.3b", 1.3 * kBillion, 0.1 * kBillion, "Zheng et al. OSDI'22"},
    {"gpt-moe-2.4b", 2.4 * kBillion, 0.1 * kBillion, "Zheng et al. OSDI'22"},
    {"gpt-moe-10b", 10 * kBillion, kBillion, "Zheng et al. OSDI'22"},
    {"gpt-moe-27b", 27 * kBillion, kBillion, "Zheng et al. OSDI'22"},
    {"gpt-moe-70b", 70 * kBillion, kBillion, "Zheng et al. OSDI'22"},
    // BERT with 128 positions: embeddings (30,522 + 128 + 2)·h and a norm; 8 layers' attention and norms, 4
    // dense MLPs, 4 times 8 experts (no biases) and a router; pooler, transform, norm, biases and
    // next-sentence head.
    {"bert-moe",
     30'652 * 768.0 + 2 * 768 + 8 * (4 * 768.0 * 768 + 8 * 768) + 4 * (8 * 768.0 * 768 + 5 * 768) +
         4 * (8 * 8 * 768.0 * 768 + 8 * 768) + 2 * (768.0 * 768 + 768) + 2 * 768 + 30'522 + 2 * 769,
     0, "closed form"},
};

TEST(Zoo, ParameterCountsAreThePublishedOnes) {
  for (const Published& row : kPublished) {
    const Result<Graph> graph = build_model(row.name);
    ASSERT_TRUE(graph.ok()) << row.name << ": " << graph.error().message;
    EXPECT_NEAR(static_cast<double>(graph->parameter_count()), row.parameters, row.digit)
        << row.name << " (" << row.source << ")";
  }
}

TEST(Zoo, EveryModelHasARowAbove) {
  std::set<std::string> rows;
  for (const Published& row : kPublished) rows.insert(row.name);
  for (const std::string& name : model_names()) EXPECT_TRUE(rows.contains(name)) << name;
}

TEST(Zoo, EveryModelNamesItsSourceAndDescribesItself) {
  for (const std::string& name : model_names()) {
    const Result<ModelInfo> info = describe_model(name);
    ASSERT_TRUE(info.ok()) << info.error().message;
    EXPECT_EQ(info->name, name);
    EXPECT_FALSE(info->source.empty()) << name;
    if (info->kind == ModelKind::Language) {
      EXPECT_TRUE(info->counts_tokens) << name;
      EXPECT_EQ(info->seq, std::min<std::int64_t>(info->context, 8192)) << name;
    }
  }
}

// torchvision prints multiply-adds as "GFLOPS".
TEST(Zoo, ForwardMultiplyAddsOfVisionModelsAreTorchvisions) {
  const std::pair<const char*, double> rows[] = {
      {"alexnet", 0.71},  {"vgg16", 15.47},    {"vgg19", 19.63},     {"resnet18", 1.81},         {"resnet34", 3.66},
      {"resnet50", 4.09}, {"resnet101", 7.80}, {"resnet152", 11.51}, {"wide-resnet50-2", 11.40}, {"inception-v3", 5.71},
      {"vit-b", 17.56},   {"vit-l", 61.55},    {"vit-h", 167.29}};
  for (const auto& [name, giga] : rows) {
    const double flops = summarize(*build_model(name)).flops_forward.value;
    EXPECT_NEAR(flops / 2e9, giga, 0.01 * giga) << name;
  }
}

// Narayanan et al. SC'21, appendix: forward 24·B·s·l·h² + 4·B·s²·l·h and 2·B·s·h·V for the head; backward
// twice that.
TEST(Zoo, FlopsOfGptsAreThoseOfMegatronsFormula) {
  struct Shape {
    const char* name;
    double l, h, v, s;
  };
  const Shape rows[] = {{"gpt2-1.5b", 48, 1600, 50257, 1024},
                        {"gpt3-175b", 96, 12288, 50257, 2048},
                        {"megatron-22b", 48, 6144, 51200, 2048},
                        {"megatron-1t", 128, 25600, 51200, 2048},
                        {"gpt3-175b:fused_attention=0", 96, 12288, 50257, 2048}};
  constexpr std::int64_t kBatch = 4;
  for (const Shape& row : rows) {
    const ModelSummary summary = summarize(*build_model(row.name, {.batch = kBatch}));
    const double forward =
        kBatch * (24 * row.s * row.l * row.h * row.h + 4 * row.s * row.s * row.l * row.h + 2 * row.s * row.h * row.v);
    EXPECT_DOUBLE_EQ(summary.flops_forward.value, forward) << row.name;
    ASSERT_TRUE(summary.flops_training.has_value()) << row.name;
    EXPECT_DOUBLE_EQ(summary.flops_training->value, 3 * forward) << row.name;
  }
}

TEST(Zoo, ActiveParametersOfMixturesAreThePublishedOnes) {
  struct Row {
    const char* name;
    double billions, digit;
  };
  const Row rows[] = {{"mixtral-8x7b", 12.9, 0.1}, {"mixtral-8x22b", 39, 1},      {"qwen3-30b-a3b", 3.3, 0.1},
                      {"qwen3-235b-a22b", 22, 1},  {"qwen2-57b-a14b", 14.2, 0.1}, {"deepseek-v2-lite", 2.7, 0.1},
                      {"deepseek-v2", 21, 1},      {"deepseek-v3", 37, 1}};
  for (const Row& row : rows)
    EXPECT_NEAR(static_cast<double>(summarize(*build_model(row.name)).active_parameters) / 1e9, row.billions, row.digit)
        << row.name;
  const ModelSummary dense = summarize(*build_model("gpt2"));
  EXPECT_EQ(dense.active_parameters, dense.parameters);
}

// Every operator's output reaches the loss: walking back from the result visits all of them.
TEST(Zoo, EveryOperatorIsConnectedToTheLossAndEveryParameterIsUsed) {
  for (const std::string& name : model_names()) {
    const Result<Graph> graph = build_model(name);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    ASSERT_EQ(graph->results().size(), 1u) << name;
    EXPECT_TRUE(graph->tensors()[graph->results()[0]].type.shape.empty()) << name << ": the loss is a scalar";
    IdVec<OpId, char> reached(graph->ops().size(), 0);
    std::vector<TensorId> open{graph->results()[0]};
    while (!open.empty()) {
      const OpId producer = graph->tensors()[open.back()].producer;
      open.pop_back();
      if (!producer.valid() || reached[producer]) continue;
      reached[producer] = 1;
      for (TensorId input : graph->inputs(producer)) open.push_back(input);
    }
    for (OpId op : graph->ops().ids()) ASSERT_TRUE(reached[op]) << name << ": " << graph->name(op);
    for (TensorId tensor : graph->tensors().ids())
      if (graph->tensors()[tensor].kind <= TensorKind::Parameter) {
        ASSERT_FALSE(graph->uses(tensor).empty()) << name << ": " << graph->name(tensor);
      }
  }
}

TEST(Zoo, EveryModelCanBeTrained) {
  for (const std::string& name : model_names()) {
    const Result<TrainingGraph> training = make_training_graph(*build_model(name));
    ASSERT_TRUE(training.ok()) << name << ": " << training.error().message;
    std::size_t parameters = 0;
    for (const Tensor& tensor : training->graph.tensors()) parameters += tensor.kind == TensorKind::Parameter;
    EXPECT_EQ(training->accumulated.size(), parameters) << name << ": every parameter has a gradient";
  }
}

TEST(Zoo, EveryModelSurvivesTheTextForm) {
  std::vector<std::string> names = model_names();
  names.push_back("gpt2:layers=2,dropout=0.25");
  for (const std::string& name : names) {
    const Graph graph = *build_model(name, {.batch = 2});
    const Result<Graph> again = parse_graph(print(graph), name);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, graph) << name;
  }
}

TEST(Zoo, ATiedHeadReadsTheEmbeddingTable) {
  const Graph tied = *build_model("llama3.2-1b"), untied = *build_model("llama3-8b");
  const auto tables = [](const Graph& graph) {
    std::vector<std::pair<std::string, std::size_t>> shared;
    for (TensorId tensor : graph.tensors().ids())
      if (graph.tensors()[tensor].kind == TensorKind::Parameter && graph.uses(tensor).size() > 1)
        shared.emplace_back(graph.name(tensor), graph.uses(tensor).size());
    return shared;
  };
  EXPECT_THAT(tables(tied), testing::ElementsAre(testing::Pair("embed.tokens.weight", 2)));
  EXPECT_THAT(tables(untied), testing::IsEmpty());
  EXPECT_TRUE(describe_model("llama3.2-1b")->tied_embeddings);
  EXPECT_FALSE(describe_model("llama3-8b")->tied_embeddings);
}

TEST(Zoo, RecurrentStepsShareTheirParameters) {
  const Graph graph = *build_model("nmt");
  for (TensorId tensor : graph.tensors().ids())
    if (graph.name(tensor) == "encoder.1.weight_hh") {
      EXPECT_EQ(graph.uses(tensor).size(), 40u);
      EXPECT_EQ(graph.name(graph.uses(tensor)[12].op), "encoder.1.step.12.cell");
      return;
    }
  FAIL() << "encoder.1.weight_hh not found";
}

TEST(Zoo, LongUnrollingsAreJoinedAndCutInTwoLevels) {
  const Result<Graph> graph = build_model("rnnlm:seq=100,hidden=8,vocab=16");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  for (OpId op : graph->ops().ids()) {
    EXPECT_LE(graph->inputs(op).size(), 32u);
    EXPECT_LE(graph->outputs(op).size(), 32u);
  }
}

TEST(Zoo, SpellingsWithDashesUnderscoresAndCapitalsAreTheSameModel) {
  for (const char* name : {"gpt2", "GPT-2", "gpt2-124m", "gpt2-117m", "gpt2_small"})
    EXPECT_EQ(describe_model(name)->name, "gpt2-124m");
  EXPECT_EQ(describe_model("resnet-50")->name, "resnet50");
  EXPECT_EQ(describe_model("Llama-3-70B")->name, "llama3-70b");
  EXPECT_EQ(describe_model("llama-3.1-405b")->name, "llama3.1-405b");
  EXPECT_EQ(describe_model("vit_b_16")->name, "vit-b");
  EXPECT_EQ(describe_model("gpt2-345m")->name, "gpt2-355m");
  EXPECT_EQ(describe_model("wide_resnet50_2")->name, "wide-resnet50-2");
  EXPECT_EQ(describe_model("gemma2-9b")->name, "gemma-2-9b");
  EXPECT_THAT(aliases_of("gpt2-124m"), testing::Contains("gpt2-117m"));
}

// Independent closed forms, over the shapes that overrides reach.
RC_GTEST_PROP(ZooLaws, GptParametersAreVhPlusShPlusLayers, ()) {
  const std::int64_t l = *rc::gen::inRange(1, 9), heads = *rc::gen::inRange(1, 9), d = *rc::gen::inRange(1, 33);
  const std::int64_t v = *rc::gen::inRange(1, 999), s = *rc::gen::inRange(1, 99), h = heads * d;
  const Result<Graph> graph =
      build_model(fmt::format("gpt2:layers={},hidden={},heads={},vocab={},context={}", l, h, heads, v, s));
  RC_ASSERT(graph.ok());
  RC_ASSERT(graph->parameter_count() == v * h + s * h + l * (12 * h * h + 13 * h) + 2 * h);
}

RC_GTEST_PROP(ZooLaws, LlamaParametersFollowTheClosedForm, ()) {
  const std::int64_t l = *rc::gen::inRange(1, 9), groups = *rc::gen::inRange(1, 5), r = *rc::gen::inRange(1, 5);
  const std::int64_t d = 2 * *rc::gen::inRange(1, 17), h = *rc::gen::inRange(1, 99), f = *rc::gen::inRange(1, 99);
  const std::int64_t v = *rc::gen::inRange(1, 999), seq = *rc::gen::inRange(1, 65);
  const Result<Graph> graph =
      build_model(fmt::format("llama3-8b:layers={},hidden={},heads={},kv_heads={},head_dim={},ffn={},vocab={},seq={}",
                              l, h, groups * r, groups, d, f, v, seq));
  RC_ASSERT(graph.ok());
  // Query and output h·(g·r·d), key and value h·(g·d), gate, up and down h·f, two norms; embedding, head,
  // last norm.
  const std::int64_t layer = 2 * h * groups * r * d + 2 * h * groups * d + 3 * h * f + 2 * h;
  RC_ASSERT(graph->parameter_count() == l * layer + 2 * v * h + h);
  // 2 FLOPs per weight and token, and 4·s²·(g·r·d) per layer for scores and values.
  const double per_layer = 2.0 * static_cast<double>(seq) * static_cast<double>(layer - 2 * h) +
                           4.0 * static_cast<double>(seq * seq * groups * r * d);
  RC_ASSERT(summarize(*graph).flops_forward.value ==
            static_cast<double>(l) * per_layer + 2.0 * static_cast<double>(seq * h * v));
}

}  // namespace
}  // namespace weft
