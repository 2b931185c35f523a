// Dependencies go one way: every #include between folders of src/ is an arrow of the table in src/README.md.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace {

namespace fs = std::filesystem;
using Arrows = std::map<std::string, std::set<std::string>>;

fs::path source_dir() {
  const char* root = std::getenv("WEFT_SOURCE_DIR");
  return root ? fs::path(root) : fs::current_path();
}

// Rows "| folder | a b c |" after the heading "## Arrows".
Arrows read_table(std::istream& readme) {
  Arrows arrows;
  std::string line;
  bool inside = false;
  const std::regex row(R"(\| *([a-z]+) *\|([a-z ]*)\|)");
  while (std::getline(readme, line)) {
    if (line.rfind("## ", 0) == 0) inside = line == "## Arrows";
    std::smatch match;
    if (!inside || !std::regex_match(line, match, row) || match[1] == "folder") continue;
    std::istringstream targets(match[2]);
    std::set<std::string>& set = arrows[match[1]];
    for (std::string target; targets >> target;) set.insert(target);
  }
  return arrows;
}

// Includes of "folder/…" in one file that the table does not allow.
std::vector<std::string> forbidden(const std::string& folder, const Arrows& arrows, std::istream& file) {
  static const std::regex include(R"re(\s*#include "([a-z_]+)/.*)re");
  std::vector<std::string> found;
  std::string line;
  while (std::getline(file, line)) {
    std::smatch match;
    if (!std::regex_match(line, match, include)) continue;
    const std::string target = match[1];
    if (target != folder && arrows.contains(target) && !arrows.at(folder).contains(target)) found.push_back(target);
  }
  return found;
}

TEST(Arrows, EveryIncludeIsInTheTable) {
  std::ifstream readme(source_dir() / "src/README.md");
  const Arrows arrows = read_table(readme);
  ASSERT_FALSE(arrows.empty());
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source_dir() / "src")) {
    const std::string extension = entry.path().extension().string();
    if ((extension != ".h" && extension != ".cpp") || entry.path().stem().string().ends_with("_test")) continue;
    const std::string folder = fs::relative(entry.path(), source_dir() / "src").begin()->string();
    ASSERT_TRUE(arrows.contains(folder)) << "src/README.md has no row for " << folder;
    std::ifstream file(entry.path());
    for (const std::string& target : forbidden(folder, arrows, file))
      ADD_FAILURE() << entry.path() << " includes " << target << "/, an arrow that src/README.md does not have";
    ++files;
  }
  EXPECT_GT(files, 30);
}

// Types defined at namespace scope, by their full name; what is in an unnamed namespace belongs to its file alone.
std::vector<std::string> types_in(std::istream& file) {
  static const std::regex opened(R"re(namespace ([a-z_:]+) \{)re");
  static const std::regex type(R"re((?:struct|class|enum class|enum) (\w+)(?: final)?(?: :[^{;]*)? \{.*)re");
  std::vector<std::string> found;
  std::string line, space;
  bool unnamed = false;
  while (std::getline(file, line)) {
    std::smatch match;
    if (line == "namespace {") unnamed = true;
    if (line == "}  // namespace") unnamed = false;
    if (std::regex_match(line, match, opened)) space = match[1];
    if (!unnamed && std::regex_match(line, match, type)) found.push_back(space + "::" + match[1].str());
  }
  return found;
}

TEST(Arrows, EveryTypeIsDefinedOnce) {
  std::map<std::string, fs::path> known;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source_dir() / "src")) {
    const std::string extension = entry.path().extension().string();
    if ((extension != ".h" && extension != ".cpp") || entry.path().stem().string().ends_with("_test")) continue;
    std::ifstream file(entry.path());
    for (const std::string& name : types_in(file)) {
      const auto [at, fresh] = known.try_emplace(name, entry.path());
      EXPECT_TRUE(fresh) << name << " is defined in " << at->second << " and in " << entry.path()
                         << ": the linker would take one for the other";
    }
  }
  EXPECT_GT(known.size(), 300u);
}

TEST(Arrows, TypesAreFoundWithTheirNamespaces) {
  std::istringstream text(
      "namespace weft {\nstruct A {\nclass B final : public A {\nenum class C : int { X };\nstruct Declared;\n"
      "namespace {\nstruct Own {\n}  // namespace\nstruct D {};\n");
  EXPECT_EQ(types_in(text), (std::vector<std::string>{"weft::A", "weft::B", "weft::C", "weft::D"}));
}

TEST(Arrows, TheTableHasNoCycle) {
  std::ifstream readme(source_dir() / "src/README.md");
  Arrows arrows = read_table(readme);
  // Take away folders without arrows until none are left.
  while (!arrows.empty()) {
    std::set<std::string> leaves;
    for (const auto& [folder, targets] : arrows)
      if (targets.empty()) leaves.insert(folder);
    ASSERT_FALSE(leaves.empty()) << "a cycle among the folders";
    for (const std::string& leaf : leaves) arrows.erase(leaf);
    for (auto& [folder, targets] : arrows)
      for (const std::string& leaf : leaves) targets.erase(leaf);
  }
}

TEST(Arrows, AnArrowUphillIsFound) {
  std::istringstream readme("## Arrows\n| base | |\n| graph | base |\n");
  std::istringstream file("#include \"graph/graph.h\"\n#include \"base/id.h\"\n#include <vector>\n");
  EXPECT_EQ(forbidden("base", read_table(readme), file), std::vector<std::string>{"graph"});
}

}  // namespace
