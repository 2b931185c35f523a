#include "strategy/tree.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Glob, NamesANodeAndCoversWhatIsBelow) {
  EXPECT_EQ(Glob("layers.*.attn").covers("layers.3.attn.qkv"), 3);
  EXPECT_EQ(Glob("layers.*").covers("layers.3.attn.qkv"), 2);
  EXPECT_EQ(Glob("**").covers("layers.3"), 0);
  EXPECT_EQ(Glob("**").covers(""), 0);
  EXPECT_EQ(Glob("**.qkv").covers("layers.3.attn.qkv"), 4);
  EXPECT_EQ(Glob("layers.**.out").covers("layers.out"), 2);
  EXPECT_EQ(Glob("layers.*.attn*").covers("layers.3.attn_norm"), 3);
  EXPECT_EQ(Glob("layers.*.attn").covers("layers.3.attn_norm"), std::nullopt);
  EXPECT_EQ(Glob("layers.*.attn").covers("layers.3"), std::nullopt);
  EXPECT_EQ(Glob("layers").covers("head"), std::nullopt);
}
TEST(Glob, CoversBackwardProductsOnlyWhenItSaysSo) {
  EXPECT_EQ(Glob("layers.*").covers("layers.3.fc1@grad_weight"), std::nullopt);
  EXPECT_EQ(Glob("layers.*.fc1@grad_*").covers("layers.3.fc1@grad_weight"), 3);
  EXPECT_EQ(Glob("layers.*.fc1@grad_weight").covers("layers.3.fc1"), std::nullopt);
}
TEST(Glob, OfALikeNameInOtherLayers) {
  EXPECT_EQ(layer_glob("layers.3.attn.qkv"), "layers.*.attn.qkv");
  EXPECT_EQ(layer_glob("embed.tokens"), "embed.tokens");
}

Rule split(std::string match, std::string axis) {
  Rule rule;
  rule.match = std::move(match);
  rule.compute["tp"] = {std::move(axis)};
  return rule;
}
std::string axis_of(const Strategy& strategy, std::string_view name) {
  const NodeConfig config = Inheritance(strategy).of(name);
  const auto found = config.compute.find("tp");
  return found == config.compute.end() ? "?" : found->second.value.axis;
}

TEST(Inheritance, GoesFromTheRootDown) {
  Strategy strategy;
  strategy.rules = {split("layers.3.attn.qkv", "deep"), split("layers.*", "layer"), split("**", "root")};
  EXPECT_EQ(axis_of(strategy, "layers.3.attn.qkv"), "deep");
  EXPECT_EQ(axis_of(strategy, "layers.3.attn.out"), "layer");
  EXPECT_EQ(axis_of(strategy, "head"), "root");
}
TEST(Inheritance, PrefersFewerWildcardsThenTheLater) {
  Strategy strategy;
  strategy.rules = {split("layers.3", "three"), split("layers.*", "any"), split("layers.*", "later")};
  EXPECT_EQ(axis_of(strategy, "layers.3.mlp"), "three");
  EXPECT_EQ(axis_of(strategy, "layers.4.mlp"), "later");
}
TEST(Inheritance, IsFieldByField) {
  Strategy strategy;
  Rule root;
  root.match = "**";
  root.recompute = Recompute::Full;
  root.stored(Stored::Optimizer).over = {"dp"};
  root.compute["dp"] = {"b"};
  Rule experts;
  experts.match = "layers.*.experts";
  experts.stored(Stored::Optimizer).offload = true;
  experts.compute["ep"] = {"e"};
  strategy.rules = {root, experts};
  const NodeConfig config = Inheritance(strategy).of("layers.0.experts.up");
  EXPECT_EQ(config.recompute->value, Recompute::Full);
  EXPECT_EQ(config.recompute->depth, 0);
  const auto optimizer = static_cast<std::size_t>(Stored::Optimizer);
  EXPECT_EQ(config.over[optimizer]->value, std::vector<std::string>{"dp"});
  EXPECT_EQ(config.over[optimizer]->rule, 0u);
  EXPECT_TRUE(config.offload[optimizer]->value);
  EXPECT_EQ(config.compute.at("dp").value.axis, "b");
  EXPECT_EQ(config.compute.at("ep").value.axis, "e");
  EXPECT_EQ(config.compute.at("ep").depth, 3);
}
TEST(Inheritance, CanTakeBackASplit) {
  Strategy strategy;
  strategy.rules = {split("layers.*", "n"), split("layers.*.norm", "")};
  EXPECT_EQ(axis_of(strategy, "layers.0.norm"), "");
}

}  // namespace
}  // namespace weft
