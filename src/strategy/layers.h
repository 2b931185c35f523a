// The repeated blocks of a model, in the order of the network: the units of pipeline stages and of `full`
// recomputation. A layer is an outermost module whose name is a number: layers.7, encoder.layers.0, layer1.2.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace weft {

struct Layers {
  std::vector<std::string> names;  // "layers.0", …, by first operator
  IdVec<OpId, int> of;             // the layer of a forward operator; −1 outside of layers and for other operators

  std::int64_t count() const { return static_cast<std::int64_t>(names.size()); }
};

// Cost: linear in operators.
Layers find_layers(const Graph& graph);

}  // namespace weft
