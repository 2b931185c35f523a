// --rules: how names in published tables map to nodes, stacks and models, for the commands that read such tables.
#pragma once

#include "validate/mapping.h"

namespace CLI {
class App;
}

namespace weft {

void add_rules_argument(CLI::App& command, std::string& path);

// The rules of the file; empty rules without a file. An error: published tables without a file.
Result<MappingRules> rules_for(const std::vector<MeasuredFile>& files, const std::string& path, bool needed = false);

}  // namespace weft
