// The repeated blocks of a model, in the order of the network: what pipeline stages are cut from and what `full`
// recomputation goes by. A layer is an outermost module whose name is a number: layers.7, encoder.layers.0, layer1.2.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace weft {

struct Layers {
  std::vector<std::string> names;  // "layers.0", …, by first operator
  IdVec<OpId, int> of;             // forward operators: the layer, −1 outside of all; others −1

  std::int64_t count() const { return static_cast<std::int64_t>(names.size()); }
};

// Cost: linear in operators.
Layers find_layers(const Graph& graph);

}  // namespace weft
