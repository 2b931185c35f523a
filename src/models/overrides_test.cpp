// Overrides and their error messages.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/models.h"
#include "models/summary.h"
#include "models/zoo.h"

namespace weft {
namespace {

std::string error_of(std::string_view spec, const ModelOptions& options = {}) {
  const Result<Graph> graph = build_model(spec, options);
  return graph.ok() ? "no error" : graph.error().message;
}

std::int64_t parameters_of(std::string_view spec) {
  const Result<Graph> graph = build_model(spec);
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return graph.ok() ? graph->parameter_count() : 0;
}

TEST(Overrides, LayersAndVocabularyChangeTheCount) {
  // 12 of 80 layers of 855,654,400 (h = 8192, 64 heads of 128, 8 key heads, ffn 28672), two tables of 32,000,
  // the last norm.
  EXPECT_EQ(parameters_of("llama3-70b:layers=12,vocab=32000"), 12 * 855'654'400LL + 2 * 32'000LL * 8192 + 8192);
}

TEST(Overrides, TheFeedForwardWidthFollowsTheHiddenSizeWhereItIsFourTimesIt) {
  EXPECT_EQ(parameters_of("gpt2:hidden=1024,heads=16,layers=24"), parameters_of("gpt2-medium"));
}

TEST(Overrides, HeadsOfPlainAttentionKeepOneKeyEach) {
  EXPECT_EQ(parameters_of("llama2-7b:heads=64"), parameters_of("llama2-7b"));
}

TEST(Overrides, SequenceAndBatchMayStandInTheSpec) {
  const Result<ModelInfo> info = describe_model("llama3-8b:seq=2048,batch=4");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->seq, 2048);
  EXPECT_EQ(info->batch, 4);
  const Result<Graph> graph = build_model("llama3-8b:seq=2048,batch=4");
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->tensors()[TensorId(0)].type.shape, (Shape{4, 2048}));
}

TEST(Overrides, ExpertsCanBeAddedToADenseModel) {
  // Each of the two layers: 4 experts instead of one MLP, and a router of 768 × 4.
  const std::int64_t mlp = 2LL * 768 * 3072;
  EXPECT_EQ(parameters_of("gpt2:layers=2,experts=4,top_k=1,bias=0") - parameters_of("gpt2:layers=2,bias=0"),
            2 * (3 * mlp + 768 * 4));
}

TEST(Overrides, DropoutZeroRemovesTheDropoutOperators) {
  const Graph with = *build_model("gpt2:layers=1"), without = *build_model("gpt2:layers=1,dropout=0");
  EXPECT_EQ(with.ops().size() - without.ops().size(), 3u);  // embedding, attention and MLP outputs
  EXPECT_EQ(with.parameter_count(), without.parameter_count());
}

TEST(Overrides, UnfusedAttentionCostsTheSameFlops) {
  for (const std::string name :
       {"llama3-8b:layers=2", "deepseek-v2-lite:layers=2", "mpt-7b:layers=2", "bert-base:layers=2", "vit-b:layers=2"}) {
    const ModelSummary fused = summarize(*build_model(name)),
                       unfused = summarize(*build_model(name + ",fused_attention=0"));
    EXPECT_EQ(fused.flops_forward, unfused.flops_forward) << name;
    EXPECT_EQ(fused.parameters, unfused.parameters) << name;
    EXPECT_TRUE(unfused.flops_training.has_value()) << name;
  }
}

// HAP's models: eight layers of 768; images of 32 in patches of 4 with ten classes; text of 128 tokens.
TEST(Overrides, HapsEightLayerVariantsAreReachable) {
  EXPECT_TRUE(build_model("vit-b:layers=8,image=32,patch=4,classes=10", {.batch = 64}).ok());
  EXPECT_TRUE(build_model("bert-base:layers=8,seq=128", {.batch = 64}).ok());
  EXPECT_TRUE(build_model("bert-moe:experts=64", {.batch = 32}).ok());
  EXPECT_TRUE(
      build_model("vgg19:image=32,classes=10", {.batch = 64}).ok());  // the last single position is repeated 7×7
}

TEST(Overrides, ALargerImageIsPooledToTheClassifiersSize) {
  EXPECT_EQ(parameters_of("vgg16:image=448"), parameters_of("vgg16"));
  EXPECT_EQ(parameters_of("resnet50:image=176"), parameters_of("resnet50"));
}

TEST(Errors, AnUnknownModelSuggestsTheNearest) {
  EXPECT_EQ(error_of("resnt50"), "model 'resnt50': not in the zoo; did you mean resnet50, resnet101 or resnet152?");
  EXPECT_EQ(error_of("xyzzy-plugh-42"),
            "model 'xyzzy-plugh-42': not in the zoo; `weft show models` lists it, or give the path of a "
            "config.json or .onnx file");
  EXPECT_EQ(error_of(""), "model '': name missing");
}

TEST(Errors, AnUnknownOverrideSuggestsTheNearest) {
  EXPECT_EQ(error_of("llama3-8b:layer=4"), "llama3-8b: unknown override 'layer'; did you mean layers?");
  EXPECT_EQ(error_of("resnet50:zzzzzzzz=4"),
            "resnet50: unknown override 'zzzzzzzz'; this model takes batch, image, channels, classes, aux, "
            "width, base_width, dropout");
}

TEST(Errors, ValuesMustBeWholePositiveAndSane) {
  EXPECT_EQ(error_of("gpt2:layers=1.5"), "gpt2: layers=1.5: not a whole number");
  EXPECT_EQ(error_of("gpt2:layers=many"), "gpt2: layers=many: not a whole number");
  EXPECT_EQ(error_of("gpt2:layers=0"), "gpt2: layers=0: must be between 1 and 10000");
  EXPECT_EQ(error_of("gpt2:layers=-3"), "gpt2: layers=-3: must be between 1 and 10000");
  EXPECT_EQ(error_of("gpt2:layers=1000000"), "gpt2: layers=1000000: must be between 1 and 10000");
  EXPECT_EQ(error_of("gpt2:layers=99999999999999999999"), "gpt2: layers=99999999999999999999: not a whole number");
  EXPECT_EQ(error_of("gpt2:dropout=1.5"), "gpt2: dropout=1.5: must be at least 0 and below 1");
  EXPECT_EQ(error_of("gpt2:bias=2"), "gpt2: bias=2: must be between 0 and 1");
  EXPECT_EQ(error_of("gpt2:positions=clever"), "gpt2: positions=clever: write learned, rotary, alibi, relative, none");
  EXPECT_EQ(error_of("mixtral-8x7b:top_k=9"), "mixtral-8x7b: top_k=9: must be between 1 and experts=8");
}

TEST(Errors, AnOverrideWithoutAValueSaysHowToWriteIt) {
  EXPECT_EQ(error_of("gpt2:layers"), "gpt2: override 'layers': write key=value");
  EXPECT_EQ(error_of("gpt2:layers="), "gpt2: override 'layers=': write key=value");
  EXPECT_EQ(error_of("gpt2:layers=2,,heads=4"), "gpt2: override '': write key=value");
}

TEST(Errors, HeadsMustDivide) {
  EXPECT_EQ(error_of("gpt2:hidden=1000"),
            "gpt2: heads=12 does not divide hidden=1000; change one of them or set head_dim");
  EXPECT_EQ(error_of("llama3-8b:kv_heads=5"), "llama3-8b: kv_heads=5 does not divide heads=32");
  EXPECT_EQ(error_of("vit-b:patch=15"), "vit-b: patch=15 does not divide image=224");
}

TEST(Errors, ASequenceBeyondTheLearnedPositionsIsRefused) {
  EXPECT_EQ(error_of("gpt2", {.seq = 2048}),
            "gpt2-124m: seq=2048: the model has 1024 learned positions; use a shorter sequence or override "
            "context");
  EXPECT_EQ(error_of("gpt2:context=2048", {.seq = 2048}), "no error");
  EXPECT_EQ(error_of("llama3-8b", {.seq = 100'000}), "no error");  // rotary positions have no limit
  EXPECT_EQ(error_of("resnet50", {.seq = 128}), "resnet50: seq=128: the model has no sequence");
}

TEST(Errors, AnImageTooSmallSaysSo) {
  EXPECT_EQ(error_of("vgg19:image=64"), "vgg19: image=64: too small, 2×2 positions are left where 7×7 are needed");
}

TEST(Errors, ImpossiblyLargeModelsAreRefusedNotBuilt) {
  EXPECT_NE(error_of("llama3-8b:hidden=4194304,ffn=16777216,heads=4,layers=10000"), "no error");
  EXPECT_NE(error_of("llama3-8b", {.batch = 1LL << 32, .seq = 1LL << 32}), "no error");
  EXPECT_EQ(error_of("nmt:seq=4000000000"),
            "nmt: seq=4000000000: 2 layers of that many steps are too many cells to unroll");
  EXPECT_EQ(error_of("llama3-8b:hidden=99999999"), "llama3-8b: hidden=99999999: must be between 1 and 4194304");
}

// Any text after the colon gives an error or a graph, never a crash.
RC_GTEST_PROP(OverrideLaws, ArbitraryTextNeverCrashes, ()) {
  const std::string text =
      *rc::gen::container<std::string>(rc::gen::elementOf(std::string("layershidncotkv_=,.:0123456789-")));
  const Result<ModelInfo> info = describe_model("gpt2:" + text);
  if (!info.ok()) RC_ASSERT(!info.error().message.empty());
}

}  // namespace
}  // namespace weft
