// The strategy tree as a tree: every rule at the node of the module tree that it names.
#pragma once

#include <string>

#include "strategy/tree.h"

namespace weft {

std::string draw_tree(const Strategy& strategy);

}  // namespace weft
