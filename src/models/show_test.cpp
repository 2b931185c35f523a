#include "models/show.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

TEST(Show, ReadsLikeAPage) {
  const Result<Model> model = load_model("llama3-70b");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(describe(*model),
            R"(llama3-70b: language model, 80 layers, context 8,192
  shapes from Dubey et al. 2024, table 3; checkpoints meta-llama/*
  figures for 1 sample of 8,192 tokens

  parameters           70,553,706,496 (70.6 B, 131 GiB)
  FLOPs forward        1.31 PFLOP (contractions; 313 GFLOP besides)
  FLOPs training       3.94 PFLOP (forward and backward)
  activations          181 GiB kept for backward, without recompute
  operators            1,045, 15 of them different; 1,932 tensors
    321 linear, 161 rms_norm, 160 binary, 160 rotary, 80 attention, 80 glu, 80 split,
    1 cross_entropy, 1 embedding, 1 nll_loss

  module (figures of one copy)  parameters  FLOPs forward  of all
  embed                             1.05 B              -       -
  layers.0…79 (80×)                  856 M     16.2 TFLOP  98.7 %
    attn                             151 M     4.67 TFLOP  28.4 %
    mlp                              705 M     11.5 TFLOP  70.3 %
  head                              1.05 B     17.2 TFLOP   1.3 %
)");
}

TEST(Show, JsonHasTheContractsKeys) {
  const nlohmann::json json = to_json(*load_model("mixtral-8x7b"));
  EXPECT_EQ(json["parameters"], 46'702'792'704);
  EXPECT_EQ(json["active_parameters"], 12'879'925'248);
  for (const char* key : {"flops_forward", "flops_training", "activation_bytes", "operators", "tensors"})
    EXPECT_TRUE(json[key].is_number_integer()) << key;
  EXPECT_EQ(json["flops_training"].get<std::int64_t>(), 3 * json["flops_forward"].get<std::int64_t>());
  EXPECT_EQ(json["modules"][1]["name"], "layers");
  EXPECT_EQ(json["modules"][1]["modules"][0]["copies"], 32);
  EXPECT_TRUE(to_json(*load_model("resnet50"))["seq"].is_null());
}

TEST(Show, TheZooIsListedByFamily) {
  const std::string list = list_models();
  EXPECT_NE(list.find("resnet18  resnet34  resnet50"), std::string::npos) << list;
  for (const std::string& name : model_names()) EXPECT_NE(list.find(name), std::string::npos) << name;
}

TEST(Summary, AlikeLayersFoldAndUnlikeOnesDoNot) {
  const Graph graph = *build_model("deepseek-v3");
  const std::vector<LayerRun> runs = layer_runs(graph);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].parent, "layers");
  EXPECT_EQ(runs[0].first, 0);
  EXPECT_EQ(runs[0].count, 3);  // dense
  EXPECT_EQ(runs[1].first, 3);
  EXPECT_EQ(runs[1].count, 58);  // with experts
}

TEST(Summary, RunsOfGemmaAlternateWhereItsWindowDoes) {
  EXPECT_EQ(layer_runs(*build_model("gemma-2-2b", {.seq = 8192})).size(), 26u);
  EXPECT_EQ(layer_runs(*build_model("gemma-2-2b", {.seq = 4096})).size(), 1u);  // the window covers all
}

TEST(Summary, TheTreeAddsUp) {
  for (const char* name : {"gpt2", "t5-small", "resnet50", "nmt", "deepseek-v2-lite", "dlrm"}) {
    const Graph graph = *build_model(name);
    const ModelSummary summary = summarize(graph);
    const ModuleSummary root = module_tree(graph);
    EXPECT_EQ(root.parameters, summary.parameters) << name;
    EXPECT_EQ(root.operators, summary.operators) << name;
    EXPECT_DOUBLE_EQ(root.flops_forward.value, summary.flops_forward.value) << name;
  }
}

// GPT-2 medium, one sample of 1,024 tokens in 16 bits; h = 1024. Kept per layer, in units of 1024·1024·2
// bytes (2 MiB): the two norms' inputs (2), query, key and value (3), attention's output (1), the MLP's input
// twice — before and after its activation (8), the norms' outputs that feed linears (2) — 16 units and a few
// statistics and dropout masks.
TEST(Summary, ActivationBytesGrowLinearlyWithLayersAndBatch) {
  const auto bytes = [](const char* spec) { return summarize(*build_model(spec)).activation_bytes->value; };
  const std::int64_t one = bytes("gpt2-medium:layers=1"), two = bytes("gpt2-medium:layers=2"),
                     three = bytes("gpt2-medium:layers=3");
  EXPECT_EQ(three - two, two - one);
  const double units = static_cast<double>(two - one) / (1024.0 * 1024 * 2);
  EXPECT_GT(units, 15.5);
  EXPECT_LT(units, 18.5);
  EXPECT_EQ(bytes("gpt2-medium:layers=1,batch=2"), 2 * one - 4);  // the loss is one number, whatever the batch
}

}  // namespace
}  // namespace weft
