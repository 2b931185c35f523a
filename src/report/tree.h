// The strategy tree as a tree: every rule at the node of the module tree that it names.
#pragma once

#include <string>

#include "strategy/tree.h"

namespace weft {

std::string draw_tree(const Strategy& strategy);
// Rules of single operators in short: neighbours that say the same are one line, "conv1 … fc2_relu (15)".
std::string summarise_rules(const Strategy& strategy);

}  // namespace weft
