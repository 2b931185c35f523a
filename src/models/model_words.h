// Words for a configuration, and the configuration behind words: "llama3-8b:layers=4" ↔ TransformerConfig. For shapes
// that come from elsewhere, such as the launch arguments of a trainer.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/zoo.h"

namespace weft {

// The configuration of a model's words, overrides applied. An ONNX file has none.
Result<ModelConfig> configuration_of(std::string_view spec);

// Every default spelt out: configurations that build the same graph compare equal.
TransformerConfig canonical(TransformerConfig config);

// The zoo entry that needs the fewest overrides to become this transformer, with them: "llama3-8b:layers=4". None where
// overrides cannot express a difference (a soft cap, norms after each block). Cost: entries of the zoo × override keys.
std::optional<std::string> words_of(const TransformerConfig& config);

}  // namespace weft
