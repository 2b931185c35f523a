#include "cli/rules_argument.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace weft {

void add_rules_argument(CLI::App& command, std::string& path) {
  command.add_option("--rules", path,
                     "what the words of published tables mean (YAML); tables in the words of weft simulate need none");
}

Result<MappingRules> rules_for(const std::vector<MeasuredFile>& files, const std::string& path, bool needed) {
  if (!path.empty()) {
    Result<MappingRules> rules = read_mapping_rules(path);
    if (!rules.ok()) return rules.error().at("--rules");
    return rules;
  }
  const auto published = std::find_if(files.begin(), files.end(), [](const MeasuredFile& file) {
    return !file.rows.empty() && !file.rows.front().typed;
  });
  if (needed || published != files.end())
    return error(
        "{}a table that names gpus, not a cluster and a strategy: add --rules FILE, which says what node, stack and "
        "model its words mean; tools/published_runs.yaml has those of the published tables",
        published != files.end() ? published->file + ": " : "");
  return MappingRules();
}

}  // namespace weft
