#include "problem/sections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "models/models.h"
#include "problem/problem.h"

namespace weft {
namespace {

// Kinds by letter, in the order in which they appear; layers are capitals: "aBBc".
std::string written(const std::vector<Section>& sections) {
  std::string text;
  for (const Section& section : sections) text += static_cast<char>((section.is_layer ? 'A' : 'a') + section.kind);
  return text;
}

std::vector<Section> sections_of(const std::string& model) {
  SectionKinds kinds;
  return find_sections(build_model(model).value(), kinds).list;
}

TEST(Sections, ADecoderIsAnEmbeddingLayersAndAHead) { EXPECT_EQ(written(sections_of("llama3-8b:layers=3")), "aBBBc"); }

// The embedding and the position bias of each stack stand before it, the norm of the encoder after it.
TEST(Sections, AnEncoderDecoderHasTwoStacks) {
  const std::vector<Section> sections = sections_of("t5-base:layers=2");
  EXPECT_EQ(written(sections), "aBBcdEEf");
  EXPECT_EQ(sections[3].layer, 1);   // the norm runs in the stage of the encoder's last layer
  EXPECT_EQ(sections[4].layer, -1);  // no layer is behind the decoder's embedding
  EXPECT_EQ(sections[7].layer, 4);   // the head, after all of them
}

// A stem, four stages whose first block has a projection, pooling and classifier.
TEST(Sections, AResidualNetworkHasAKindForEveryStage) {
  EXPECT_EQ(written(sections_of("resnet50")), "aBCCDEEEFGGGGGHIIj");
}

TEST(Sections, AModelWithoutLayersIsOnePiece) { EXPECT_EQ(written(sections_of("alexnet")).size(), 1u); }

// Costs of t5-11b's 48 layers are read from four: two, so that what all layers share is summed, of either stack.
TEST(Sections, TheShortModelHasEveryKindOfSection) {
  const PlanProblem problem =
      pose({.model = "t5-11b", .cluster = "dgx-a100:1", .strategy = "", .global_batch = 8}).value();
  EXPECT_EQ(problem.layers.count(), 48);
  EXPECT_EQ(problem.layers.short_kind, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(written(problem.layers.short_sections), "aBBcdEEf");
}

}  // namespace
}  // namespace weft
