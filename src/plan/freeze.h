// Which parameters are not trained, in the user's words: fine-tuning of a few layers, adapters beside frozen weights.
//
// Globs over parameter names (strategy/glob.h), joined by +; an item behind ! takes parameters back; the last item that
// covers a parameter counts:
//   embed+layers.*.mlp         those are frozen
//   **+!**.lora_*                  everything but the adapters
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace weft {

// In order. An item that covers no parameter is an error, which names the nearest that does.
Result<std::vector<TensorId>> frozen_parameters(const Graph& graph, std::string_view globs);

// The same words for a shorter model: without the items that cover nothing in it.
std::string freeze_in(const Graph& graph, std::string_view globs);

}  // namespace weft
