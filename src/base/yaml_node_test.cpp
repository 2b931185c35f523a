#include "base/yaml_node.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr YamlFileKind kRecipe = {"a recipe", "salt: 1"};

std::string problem(std::string_view text) {
  const Result<YamlNode> root = YamlNode::load(text, "soup.yaml", kRecipe);
  return root.ok() ? "" : root.error().message;
}

TEST(YamlNode, SaysWhatKindOfFileIsEmptyOrTooLarge) {
  EXPECT_EQ(problem(""), "soup.yaml: empty; write at least 'salt: 1'");
  EXPECT_EQ(problem(" \n\n"), "soup.yaml: empty; write at least 'salt: 1'");
  EXPECT_EQ(problem(std::string(YamlNode::kMostBytes + 1, ' ')),
            "soup.yaml: 524289 bytes: a recipe has at most 524288");
}

TEST(YamlNode, KnowsTheLineOfEveryValue) {
  const YamlNode root = YamlNode::load("salt: 1\nwater:\n  - x\n  - .nan\n", "soup.yaml", kRecipe).value();
  const YamlMap map = root.map("recipe").value();
  EXPECT_EQ(map.find("salt")->line(), 1);
  const std::vector<YamlNode> water = map.find("water")->list("water").value();
  EXPECT_EQ(water[0].integer("water", 0, 9).error().message, "soup.yaml:3: water 'x': not a whole number");
  EXPECT_EQ(water[1].number("water").error().message, "soup.yaml:4: water '.nan': not a finite number");
  EXPECT_EQ(map.find("salt")->integer("salt", 2, 9).error().message, "soup.yaml:1: salt '1': from 2 to 9");
  static const std::string known[] = {"salt", "wader"};
  EXPECT_EQ(root.map("recipe", known).error().message, "soup.yaml:2: recipe: unknown key 'water'; did you mean wader?");
}

}  // namespace
}  // namespace weft
