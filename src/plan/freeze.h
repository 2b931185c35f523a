// Which parameters are not trained, as --freeze gives them: fine-tuning of a few layers, adapters on frozen weights.
//
// Globs over parameter names (strategy/glob.h), joined by +; an item after ! makes parameters trainable again; the last
// item that matches a parameter decides:
//   embed+layers.*.mlp         those are frozen
//   **+!**.lora_*                  everything but the adapters
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace weft {

// In ascending order. An item that matches no parameter is an error, which names the nearest one that does.
Result<std::vector<TensorId>> frozen_parameters(const Graph& graph, std::string_view globs);

// The globs for a shorter model: without the items that match nothing in it.
std::string freeze_in(const Graph& graph, std::string_view globs);

}  // namespace weft
