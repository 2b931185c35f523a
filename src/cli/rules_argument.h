// --rules: what the words of published tables mean, for the commands that read them.
#pragma once

#include "validate/mapping.h"

namespace CLI {
class App;
}

namespace weft {

void add_rules_argument(CLI::App& command, std::string& path);

// The rules of the file; none where there is none. An error: tables as publications print them, and no file.
Result<MappingRules> rules_for(const std::vector<MeasuredFile>& files, const std::string& path, bool needed = false);

}  // namespace weft
