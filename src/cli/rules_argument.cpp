#include "cli/rules_argument.h"

#include <CLI/CLI.hpp>

namespace weft {

void add_rules_argument(CLI::App& command, std::string& path) {
  command.add_option("--rules", path,
                     "what the words of published tables mean (YAML); tables in the words of weft simulate need none");
}

}  // namespace weft
