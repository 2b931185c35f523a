// Graphviz output: operators as boxes inside the boxes of their modules, tensors as edges.
#pragma once

#include <string>

#include "graph/graph.h"

namespace weft {

std::string to_dot(const Graph& graph);

}  // namespace weft
