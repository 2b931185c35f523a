// Hugging Face config.json: the zoo's models from their published fields, and hostile files.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "models/models.h"
#include "models/zoo.h"

namespace weft {
namespace {

struct Pair {
  const char* name;  // in the zoo
  const char* json;
};

// The fields that determine the graph, as the checkpoints' files have them.
const Pair kPairs[] = {
    {"gpt2-124m",
     R"({"model_type":"gpt2","n_layer":12,"n_embd":768,"n_head":12,"vocab_size":50257,"n_positions":1024,"n_ctx":1024,
                      "activation_function":"gelu_new","resid_pdrop":0.1})"},
    {"gpt-neox-20b",
     R"({"model_type":"gpt_neox","num_hidden_layers":44,"hidden_size":6144,"num_attention_heads":64,
                      "intermediate_size":24576,"vocab_size":50432,"max_position_embeddings":2048,"rotary_pct":0.25,
                      "rotary_emb_base":10000,"hidden_act":"gelu_fast","tie_word_embeddings":false})"},
    {"opt-66b",
     R"({"model_type":"opt","num_hidden_layers":64,"hidden_size":9216,"num_attention_heads":72,"ffn_dim":36864,
                      "vocab_size":50272,"max_position_embeddings":2048,"word_embed_proj_dim":9216,"do_layer_norm_before":true,
                      "activation_function":"relu","dropout":0.1})"},
    {"bloom-176b",
     R"({"model_type":"bloom","n_layer":70,"hidden_size":14336,"num_attention_heads":112,"vocab_size":250880,
                      "seq_length":2048,"hidden_dropout":0.0})"},
    {"mpt-7b",
     R"({"model_type":"mpt","n_layers":32,"d_model":4096,"n_heads":32,"vocab_size":50432,"max_seq_len":2048,
                      "expansion_ratio":4,"no_bias":true,"learned_pos_emb":true,"attn_config":{"alibi":true,"qk_ln":false}})"},
    {"llama2-7b", R"({"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
                      "num_key_value_heads":32,"intermediate_size":11008,"vocab_size":32000,"max_position_embeddings":4096,
                      "hidden_act":"silu","tie_word_embeddings":false})"},
    {"llama3.2-1b",
     R"({"model_type":"llama","num_hidden_layers":16,"hidden_size":2048,"num_attention_heads":32,"head_dim":64,
                      "num_key_value_heads":8,"intermediate_size":8192,"vocab_size":128256,"max_position_embeddings":131072,
                      "rope_theta":500000.0,"tie_word_embeddings":true,"attention_bias":false,"mlp_bias":false})"},
    {"mistral-7b",
     R"({"model_type":"mistral","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
                      "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000,"max_position_embeddings":32768,
                      "sliding_window":4096})"},
    {"mixtral-8x7b",
     R"({"model_type":"mixtral","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
                      "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000,"max_position_embeddings":32768,
                      "rope_theta":1000000.0,"sliding_window":null,"num_local_experts":8,"num_experts_per_tok":2})"},
    {"qwen2.5-7b",
     R"({"model_type":"qwen2","num_hidden_layers":28,"hidden_size":3584,"num_attention_heads":28,
                      "num_key_value_heads":4,"intermediate_size":18944,"vocab_size":152064,"max_position_embeddings":131072,
                      "rope_theta":1000000.0,"use_sliding_window":false,"sliding_window":131072,"tie_word_embeddings":false})"},
    {"qwen2-57b-a14b",
     R"({"model_type":"qwen2_moe","num_hidden_layers":28,"hidden_size":3584,"num_attention_heads":28,
                      "num_key_value_heads":4,"intermediate_size":18944,"vocab_size":151936,"max_position_embeddings":131072,
                      "rope_theta":1000000.0,"num_experts":64,"num_experts_per_tok":8,"moe_intermediate_size":2560,
                      "shared_expert_intermediate_size":20480,"norm_topk_prob":false,"decoder_sparse_step":1})"},
    {"qwen3-8b",
     R"({"model_type":"qwen3","num_hidden_layers":36,"hidden_size":4096,"num_attention_heads":32,"head_dim":128,
                      "num_key_value_heads":8,"intermediate_size":12288,"vocab_size":151936,"max_position_embeddings":40960,
                      "rope_theta":1000000,"attention_bias":false})"},
    {"qwen3-30b-a3b",
     R"({"model_type":"qwen3_moe","num_hidden_layers":48,"hidden_size":2048,"num_attention_heads":32,
                      "head_dim":128,"num_key_value_heads":4,"intermediate_size":6144,"vocab_size":151936,
                      "max_position_embeddings":40960,"rope_theta":1000000.0,"num_experts":128,"num_experts_per_tok":8,
                      "moe_intermediate_size":768,"norm_topk_prob":true,"mlp_only_layers":[]})"},
    {"gemma-2-9b",
     R"({"model_type":"gemma2","num_hidden_layers":42,"hidden_size":3584,"num_attention_heads":16,"head_dim":256,
                      "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":256000,"max_position_embeddings":8192,
                      "hidden_activation":"gelu_pytorch_tanh","query_pre_attn_scalar":256,"attn_logit_softcapping":50.0,
                      "final_logit_softcapping":30.0,"sliding_window":4096})"},
    {"deepseek-v2-lite",
     R"({"model_type":"deepseek_v2","num_hidden_layers":27,"hidden_size":2048,"num_attention_heads":16,
                      "num_key_value_heads":16,"intermediate_size":10944,"vocab_size":102400,"max_position_embeddings":163840,
                      "kv_lora_rank":512,"q_lora_rank":null,"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,
                      "n_routed_experts":64,"num_experts_per_tok":6,"moe_intermediate_size":1408,"n_shared_experts":2,
                      "first_k_dense_replace":1,"moe_layer_freq":1,"scoring_func":"softmax","topk_method":"greedy",
                      "norm_topk_prob":false,"routed_scaling_factor":1.0})"},
    {"deepseek-v3",
     R"({"model_type":"deepseek_v3","num_hidden_layers":61,"hidden_size":7168,"num_attention_heads":128,
                      "num_key_value_heads":128,"intermediate_size":18432,"vocab_size":129280,"max_position_embeddings":163840,
                      "kv_lora_rank":512,"q_lora_rank":1536,"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,
                      "n_routed_experts":256,"num_experts_per_tok":8,"n_group":8,"topk_group":4,
                      "moe_intermediate_size":2048,"n_shared_experts":1,
                      "first_k_dense_replace":3,"moe_layer_freq":1,"scoring_func":"sigmoid","topk_method":"noaux_tc",
                      "norm_topk_prob":true,"routed_scaling_factor":2.5})"},
    {"kimi-k2",
     R"({"model_type":"kimi_k2","num_hidden_layers":61,"hidden_size":7168,"num_attention_heads":64,
                      "num_key_value_heads":64,"intermediate_size":18432,"vocab_size":163840,"max_position_embeddings":131072,
                      "kv_lora_rank":512,"q_lora_rank":1536,"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,
                      "n_routed_experts":384,"num_experts_per_tok":8,"n_group":1,"topk_group":1,
                      "moe_intermediate_size":2048,"n_shared_experts":1,"num_nextn_predict_layers":0,"rope_theta":50000.0,
                      "first_k_dense_replace":1,"moe_layer_freq":1,"scoring_func":"sigmoid","topk_method":"noaux_tc",
                      "norm_topk_prob":true,"routed_scaling_factor":2.827})"},
    {"phi-3-mini",
     R"({"model_type":"phi3","num_hidden_layers":32,"hidden_size":3072,"num_attention_heads":32,
                      "num_key_value_heads":32,"intermediate_size":8192,"vocab_size":32064,"max_position_embeddings":4096,
                      "rope_theta":10000.0,"sliding_window":2047,"hidden_act":"silu","tie_word_embeddings":false})"},
    {"olmo-2-7b",
     R"({"model_type":"olmo2","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
                      "num_key_value_heads":32,"intermediate_size":11008,"vocab_size":100352,"max_position_embeddings":4096,
                      "rope_theta":500000,"hidden_act":"silu","attention_bias":false,"tie_word_embeddings":false})"},
    {"gemma-3-1b",
     R"({"model_type":"gemma3_text","num_hidden_layers":26,"hidden_size":1152,"num_attention_heads":4,"head_dim":256,
                      "num_key_value_heads":1,"intermediate_size":6912,"vocab_size":262144,"max_position_embeddings":32768,
                      "hidden_activation":"gelu_pytorch_tanh","query_pre_attn_scalar":256,"rope_theta":1000000,
                      "sliding_window":512,"sliding_window_pattern":6})"},
    // What the file of google/gemma-3-4b-pt has; the rest are defaults.
    {"gemma-3-4b",
     R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","num_hidden_layers":34,"hidden_size":2560,
                      "intermediate_size":10240,"sliding_window":1024},"vision_config":{"hidden_size":1152}})"},
    {"gpt-oss-20b",
     R"({"model_type":"gpt_oss","num_hidden_layers":24,"hidden_size":2880,"num_attention_heads":64,"head_dim":64,
                      "num_key_value_heads":8,"intermediate_size":2880,"vocab_size":201088,"max_position_embeddings":131072,
                      "rope_theta":150000,"sliding_window":128,"attention_bias":true,"num_local_experts":32,
                      "num_experts_per_tok":4,"experts_per_token":4,"tie_word_embeddings":false})"},
    {"llama4-scout",
     R"({"model_type":"llama4","text_config":{"model_type":"llama4_text","num_hidden_layers":48,"hidden_size":5120,
                      "num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"intermediate_size":8192,
                      "intermediate_size_mlp":16384,"vocab_size":202048,"max_position_embeddings":10485760,
                      "rope_theta":500000.0,"attention_chunk_size":8192,"interleave_moe_layer_step":1,
                      "num_local_experts":16,"num_experts_per_tok":1,"tie_word_embeddings":false}})"},
    {"falcon-7b",
     R"({"model_type":"falcon","num_hidden_layers":32,"hidden_size":4544,"num_attention_heads":71,"vocab_size":65024,
                      "multi_query":true,"parallel_attn":true,"new_decoder_architecture":false,"bias":false,
                      "alibi":false,"hidden_dropout":0.0})"},
    {"falcon-40b",
     R"({"model_type":"falcon","num_hidden_layers":60,"hidden_size":8192,"num_attention_heads":128,"num_kv_heads":8,
                      "vocab_size":65024,"parallel_attn":true,"new_decoder_architecture":true,"bias":false,
                      "alibi":false,"hidden_dropout":0.0})"},
    {"starcoder2-7b",
     R"({"model_type":"starcoder2","num_hidden_layers":32,"hidden_size":4608,"num_attention_heads":36,
                      "num_key_value_heads":4,"intermediate_size":18432,"vocab_size":49152,"max_position_embeddings":16384,
                      "rope_theta":1000000,"sliding_window":4096,"hidden_act":"gelu_pytorch_tanh","norm_type":"layer_norm",
                      "residual_dropout":0.1,"use_bias":true})"},
    {"nemotron-4-15b",
     R"({"model_type":"nemotron","num_hidden_layers":32,"hidden_size":6144,"num_attention_heads":48,
                      "num_key_value_heads":8,"intermediate_size":24576,"vocab_size":256000,"max_position_embeddings":4096,
                      "hidden_act":"relu2","partial_rotary_factor":0.5})"},
    {"grok-1", R"({"model_type":"grok-1","num_hidden_layers":64,"hidden_size":6144,"num_attention_heads":48,
                      "num_key_value_heads":8,"intermediate_size":32768,"vocab_size":131072,"max_position_embeddings":8192,
                      "num_experts":8,"num_experts_per_tok":2,"max_attn_value":30.0})"},
    {"bert-base", R"({"model_type":"bert","num_hidden_layers":12,"hidden_size":768,"num_attention_heads":12,
                      "intermediate_size":3072,"vocab_size":30522,"max_position_embeddings":512,"type_vocab_size":2,
                      "hidden_act":"gelu","hidden_dropout_prob":0.1})"},
    {"t5-base",
     R"({"model_type":"t5","num_layers":12,"d_model":768,"num_heads":12,"d_kv":64,"d_ff":3072,"vocab_size":32128,
                      "n_positions":512,"relative_attention_num_buckets":32,"dropout_rate":0.1})"},
    {"vit-b",
     R"({"model_type":"vit","num_hidden_layers":12,"hidden_size":768,"num_attention_heads":12,"intermediate_size":3072,
                      "image_size":224,"patch_size":16,"num_channels":3,"hidden_act":"gelu","hidden_dropout_prob":0.0})"},
};

Graph built(const TransformerConfig& config, std::int64_t seq) {
  GraphBuilder builder("imported");
  build_transformer(builder, config, {.batch = 1, .seq = seq, .dtype = DType::BF16});
  Result<Graph> graph = std::move(builder).freeze();
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return graph.ok() ? std::move(graph).value() : Graph();
}

TEST(HfConfig, ACheckpointsFileGivesTheZoosGraph) {
  for (const Pair& pair : kPairs) {
    const Result<TransformerConfig> config = import_hf_config(pair.json, "config.json");
    ASSERT_TRUE(config.ok()) << pair.name << ": " << config.error().message;
    const Model zoo = *load_model(pair.name);
    const Graph graph = built(*config, zoo.info.seq);
    EXPECT_EQ(graph.parameter_count(), zoo.graph.parameter_count()) << pair.name;
    EXPECT_EQ(graph.signatures(), zoo.graph.signatures()) << pair.name;
    EXPECT_EQ(graph.ops(), zoo.graph.ops()) << pair.name;
    EXPECT_EQ(graph.tensors(), zoo.graph.tensors()) << pair.name;
  }
}

TEST(HfConfig, AFileIsBuiltByItsPathWithOverrides) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "weft_hf_config_test.json";
  std::ofstream(path) << kPairs[0].json;
  const Result<Model> model = load_model(path.string() + ":layers=2", {.seq = 128});
  std::filesystem::remove(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->info.name, path.string());
  EXPECT_EQ(model->info.layers, 2);
  EXPECT_EQ(model->graph.parameter_count(), build_model("gpt2:layers=2")->parameter_count());
}

std::string error_of(std::string_view json) {
  const Result<TransformerConfig> config = import_hf_config(json, "m/config.json");
  return config.ok() ? "no error" : config.error().message;
}

TEST(HfConfigErrors, AMissingFileIsNamed) {
  EXPECT_EQ(build_model("no/such/config.json").error().message,
            "no/such/config.json: cannot be read: No such file or directory; name a config.json of Hugging Face");
}

TEST(HfConfigErrors, AMissingFieldIsNamedWithItsFile) {
  EXPECT_EQ(error_of(R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":64})"),
            "m/config.json: field 'num_attention_heads' missing; add it");
  EXPECT_EQ(
      error_of(R"({"hidden_size":64})"),
      "m/config.json: field 'model_type' missing; a model like Llama is read with --as llama (m/config.json:as=llama)");
  EXPECT_EQ(error_of(R"({"model_type":"gpt2","n_embd":64})"), "m/config.json: field 'n_layer' missing; add it");
}

TEST(HfConfigErrors, AnUnknownArchitectureSuggestsTheNearest) {
  EXPECT_EQ(error_of(R"({"model_type":"lama"})"),
            "m/config.json: model_type 'lama' is not supported; a model like Llama is read with --as llama "
            "(m/config.json:as=llama); did you mean llama or llama4?");
}

TEST(HfConfigErrors, TextThatIsNoObjectIsRefused) {
  EXPECT_EQ(error_of("layers: 12"), "m/config.json:1: not valid JSON at column 1");
  EXPECT_EQ(error_of("{\n  \"model_type\": \"llama\",\n  oops\n}"), "m/config.json:3: not valid JSON at column 3");
  EXPECT_EQ(error_of("[1, 2]"), "m/config.json: not a JSON object; a Hugging Face config.json is one");
  EXPECT_EQ(error_of(""), "m/config.json:1: not valid JSON at column 1: the file ends too early");
}

TEST(HfConfigErrors, ValuesOfTheWrongKindOrSizeAreRefused) {
  const auto gpt2 = [](const std::string& layers, const std::string& heads = "4") {
    return error_of(R"({"model_type":"gpt2","n_layer":)" + layers + R"(,"n_embd":64,"n_head":)" + heads +
                    R"(,"vocab_size":100,"n_positions":32})");
  };
  EXPECT_EQ(gpt2("\"twelve\""), "m/config.json: field 'n_layer': string is not a whole number in range");
  EXPECT_EQ(gpt2("12.5"), "m/config.json: field 'n_layer': 12.5 is not a whole number in range");
  EXPECT_EQ(gpt2("-1"), "m/config.json: field 'n_layer': -1 is no size; it must be at least 1");
  EXPECT_EQ(gpt2("2", "0"), "m/config.json: field 'n_head': 0 is no size; it must be at least 1");
  EXPECT_EQ(gpt2("1000000"), "m/config.json: layers=1000000: must be between 1 and 10000");
  EXPECT_EQ(gpt2("99999999999999999999"), "m/config.json: field 'n_layer': 1e+20 is not a whole number in range");
  EXPECT_EQ(gpt2("2", "3"), "m/config.json: heads=3 does not divide hidden=64; change one of them or set head_dim");
  EXPECT_EQ(gpt2("2", "4"), "no error");
}

TEST(HfConfigErrors, WhatTheGraphCannotExpressIsRefused) {
  EXPECT_EQ(
      error_of(
          R"({"model_type":"opt","num_hidden_layers":24,"hidden_size":1024,"num_attention_heads":16,"ffn_dim":4096,
                        "vocab_size":50272,"max_position_embeddings":2048,"word_embed_proj_dim":512})"),
      "m/config.json: field 'word_embed_proj_dim': must equal hidden_size");
}

// An unknown type with Llama's fields is read as llama says; modules for further tokens are named, and built if asked.
TEST(HfConfig, AnUnknownTypeIsReadAsAnother) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "weft_hf_config_as_test.json";
  std::ofstream(path) << R"({"model_type":"newcomer","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,
                             "intermediate_size":128,"vocab_size":100,"max_position_embeddings":32})";
  const Result<Model> refused = load_model(path.string());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--as llama"), std::string::npos) << refused.error().message;
  const Result<Model> model = load_model(path.string() + ":as=llama,layers=3");
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->info.layers, 3);
  EXPECT_EQ(load_model(path.string() + ":as=lama").error().message,
            "--as lama: no model_type that is read; did you mean llama or llama4?");
  std::filesystem::remove(path);
  EXPECT_EQ(load_model("llama3-8b:as=llama").error().message,
            "llama3-8b: as=llama: only a config.json is read as another type");
}

TEST(HfConfig, ModulesOfMultiTokenPredictionAreNamedWhereTheyAreLeftOut) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "weft_hf_config_mtp_test.json";
  const auto v3 = std::find_if(std::begin(kPairs), std::end(kPairs),
                               [](const Pair& pair) { return std::string_view(pair.name) == "deepseek-v3"; });
  std::string json = v3->json;
  json.insert(1, R"("num_nextn_predict_layers":1,)");
  std::ofstream(path) << json;
  const Result<ModelInfo> left_out = describe_model(path.string()), built_in = describe_model(path.string() + ":mtp=1");
  std::filesystem::remove(path);
  ASSERT_TRUE(left_out.ok() && built_in.ok());
  EXPECT_EQ(left_out->notes, std::vector<std::string>{"1 module of multi-token prediction left out (mtp=1 builds it)"});
  EXPECT_TRUE(built_in->notes.empty());
}

TEST(HfConfig, AnEncoderOfImagesIsNamedWhereItIsLeftOut) {
  const std::string text = R"({"model_type":"gemma3","text_config":{"num_hidden_layers":2},"vision_config":{}})";
  EXPECT_TRUE(import_hf_config(text, "config.json")->left_out_images);
  EXPECT_FALSE(import_hf_config(R"({"model_type":"gemma3","text_config":{}})", "config.json")->left_out_images);
}

TEST(HfConfig, ExpertsAreNotReadAsADenseModel) {
  const std::string text = R"({"model_type":"own","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,
    "intermediate_size":128,"vocab_size":512,"max_position_embeddings":128,"num_local_experts":8,"num_experts_per_tok":2})";
  EXPECT_EQ(
      import_hf_config(text, "c.json", "llama").error().message,
      "c.json as llama: field 'num_local_experts': llama has no experts; read it as one that has, --as mixtral or "
      "qwen3_moe");
  EXPECT_EQ(import_hf_config(text, "c.json", "mixtral")->moe.experts, 8);
}

// A mutated file gives a config that builds (or is refused by the builder), or an error; never a crash.
RC_GTEST_PROP(HfConfigLaws, MutatedFilesNeverCrash, ()) {
  const Pair& pair = kPairs[*rc::gen::inRange<std::size_t>(0, std::size(kPairs))];
  std::string text = pair.json;
  const int edits = *rc::gen::inRange(1, 6);
  for (int i = 0; i < edits; ++i) {
    const std::size_t at = *rc::gen::inRange<std::size_t>(0, text.size());
    const char c = *rc::gen::elementOf(std::string("0123456789-.eE\"{}[]:,ntf"));
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        text[at] = c;
        break;
      case 1:
        text.insert(at, 1, c);
        break;
      default:
        text.erase(at, 1);
        break;
    }
    if (text.empty()) text = "{";
  }
  const Result<TransformerConfig> config = import_hf_config(text, "config.json");
  if (!config.ok()) {
    RC_ASSERT(!config.error().message.empty());
    return;
  }
  TransformerConfig small = *config;
  small.layers = std::min<std::int64_t>(small.layers, 20);  // more layers only take more time
  GraphBuilder builder("mutated");
  build_transformer(builder, small, {.batch = 1, .seq = 8, .dtype = DType::BF16});
  const Result<Graph> graph = std::move(builder).freeze();
  if (!graph.ok()) RC_ASSERT(!graph.error().message.empty());
}

}  // namespace
}  // namespace weft
