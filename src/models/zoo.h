// The zoo: a table of configurations, each with the source of its shapes.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "models/models.h"
#include "models/recommender.h"
#include "models/recurrent.h"
#include "models/transformer.h"
#include "models/vision.h"

namespace weft {

using ModelConfig = std::variant<TransformerConfig, VisionConfig, RecurrentConfig, RecommenderConfig>;

struct ZooEntry {
  std::string name;
  std::vector<std::string> aliases;  // beyond case, dashes and underscores, which never matter
  ModelConfig config;
  std::string source;
};

// All entries; built once, constant.
const std::vector<ZooEntry>& zoo();
// The tables behind it, one per file.
std::vector<ZooEntry> language_zoo();
std::vector<ZooEntry> mixture_zoo();
std::vector<ZooEntry> other_zoo();

// Llama and similar models: rotary positions, RMS norm, SwiGLU, no biases.
TransformerConfig llama_like(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                             std::int64_t ffn, std::int64_t vocab, std::int64_t context, double rotary_base = 10000);

// The entry of this name or alias, else an error that suggests the nearest.
Result<const ZooEntry*> find_in_zoo(std::string_view name);

// "key=value,key=value" applied to the config; `batch` and `seq` go to the options. Errors name the key.
Status apply_overrides(std::string_view overrides, ModelConfig& config, ModelOptions& options);

// A Hugging Face config.json; `file` names it in errors. `as`: the model_type to read it as; empty: its own.
Result<TransformerConfig> import_hf_config(std::string_view text, std::string_view file, std::string_view as = {});

}  // namespace weft
