// --rules: how names in published tables map to nodes, stacks and models, for the commands that read such tables.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace weft {

void add_rules_argument(CLI::App& command, std::string& path);

}  // namespace weft
