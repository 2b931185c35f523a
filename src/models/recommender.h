// Deep learning recommendation models (Naumov et al., arXiv:1906.00091): embedding tables and a bottom MLP, their
// outputs combined, and a top MLP.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "models/transformer.h"

namespace weft {

struct RecommenderConfig {
  std::vector<std::int64_t> tables = {};  // rows of each table
  std::int64_t width = 64;                // of an embedding
  std::int64_t lookups = 1;               // rows added up per table and sample
  std::vector<std::int64_t> bottom = {};  // dense features, then the layers' widths; the last must equal `width`
  std::vector<std::int64_t> top = {};     // the layers' widths; the last is 1
  bool dot_interaction = false;           // pairwise dot products (else the vectors are joined end to end)

  bool operator==(const RecommenderConfig&) const = default;
};

Status check(const RecommenderConfig& config);
void build_recommender(GraphBuilder& builder, const RecommenderConfig& config, const StepShape& step);

}  // namespace weft
