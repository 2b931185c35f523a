#include "models/model_words.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TransformerConfig transformer(std::string_view spec) {
  return std::get<TransformerConfig>(configuration_of(spec).value());
}

TEST(ModelWords, EveryDecoderOfTheZooIsFoundAgainByItsShape) {
  int named = 0;
  for (const ZooEntry& entry : zoo()) {
    const auto* config = std::get_if<TransformerConfig>(&entry.config);
    if (config == nullptr || config->structure != Structure::Decoder) continue;
    const auto words = words_of(*config);
    ASSERT_TRUE(words) << entry.name;
    EXPECT_EQ(canonical(transformer(*words)), canonical(*config)) << entry.name << " became " << *words;
    EXPECT_EQ(words->find(':'), std::string::npos) << *words;
    ++named;
  }
  EXPECT_GE(named, 70);
}

TEST(ModelWords, AShapeThatTheZooLacksIsTheNearestEntryWithOverrides) {
  EXPECT_EQ(words_of(transformer("llama3-8b:layers=4")), "llama3-8b:layers=4");
  // 48 layers of 6144 with 64 heads are megatron-22b; a published vocabulary of 50,257 is one override.
  EXPECT_EQ(words_of(transformer("megatron-22b:vocab=50257")), "megatron-22b:vocab=50257");
}

TEST(ModelWords, DefaultsSpeltOutChangeNothing) {
  TransformerConfig config = transformer("llama3-8b");
  config.head_dim = 128;  // 4096 / 32
  EXPECT_EQ(words_of(config), "llama3-8b");
  config = transformer("gpt3-175b");
  config.kv_heads = 96;
  config.ffn = 4 * 12288;
  EXPECT_EQ(words_of(config), "gpt3-175b");
}

TEST(ModelWords, WhatNoOverrideSaysHasNoWords) {
  TransformerConfig config = transformer("llama3-8b");
  config.logit_softcap = 30;  // no llama has one, and no key sets it on another family's shape
  config.activation = Activation::Relu;
  config.post_norms = false;
  EXPECT_FALSE(words_of(config));
  EXPECT_FALSE(configuration_of("model.onnx").ok());
}

}  // namespace
}  // namespace weft
