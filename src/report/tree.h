// The strategy tree, drawn: every rule at the node of the module tree that it names.
#pragma once

#include <string>

#include "strategy/tree.h"

namespace weft {

std::string draw_tree(const Strategy& strategy);
// A summary of rules of single operators: equal neighbours are one line, "conv1 … fc2_relu (15)".
std::string summarise_rules(const Strategy& strategy);

}  // namespace weft
