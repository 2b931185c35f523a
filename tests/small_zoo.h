// The models of the zoo, made small: few layers, narrow, short sequences.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/zoo.h"

namespace weft {

struct SmallModel {
  std::string name;                 // in the zoo
  std::string spec;                 // with overrides that make it small
  std::optional<std::int64_t> seq;  // if samples are sequences
};

inline SmallModel small_model(const ZooEntry& entry) {
  if (const auto* transformer = std::get_if<TransformerConfig>(&entry.config)) {
    // A multiple of the key-value heads that queries share, of which there are two at least, to be split; 128 wide, at
    // least as wide as any rotary embedding.
    const bool shared = transformer->kv_heads < transformer->heads;
    const std::int64_t groups = shared ? std::max<std::int64_t>(transformer->kv_heads, 1) : 1;
    const std::int64_t heads = 16 % groups == 0 ? 16 : 2 * groups;
    const std::string sizes = ":layers=2,hidden=" + std::to_string(128 * heads) + ",heads=" + std::to_string(heads) +
                              ",ffn=256" + (transformer->kv_heads == 1 ? ",kv_heads=2" : "");
    if (transformer->structure == Structure::Vision) return {entry.name, entry.name + sizes, {}};
    return {entry.name, entry.name + sizes + ",vocab=1024", 64};
  }
  if (std::holds_alternative<RecurrentConfig>(entry.config))
    return {entry.name, entry.name + ":layers=2,hidden=64,vocab=256", 4};
  if (std::holds_alternative<RecommenderConfig>(entry.config))
    return {entry.name, entry.name + ":rows=256,tables=6", {}};
  return {entry.name, entry.name, {}};
}

inline std::vector<SmallModel> small_zoo() {
  std::vector<SmallModel> models;
  for (const ZooEntry& entry : zoo()) models.push_back(small_model(entry));
  return models;
}

// The first model of every family of `weft show models`.
inline std::vector<SmallModel> small_families() {
  std::vector<SmallModel> firsts;
  std::string family;
  for (const ZooEntry& entry : zoo()) {
    const std::string stem = entry.name.substr(0, std::min(entry.name.find_first_of("-0123456789"), entry.name.size()));
    if (stem != family) firsts.push_back(small_model(entry));
    family = stem;
  }
  return firsts;
}

}  // namespace weft
