// Totals of a graph: parameters, FLOPs, activation bytes, and its tree of modules with repeated ones folded. Works on
// any forward graph, whatever its source. FLOPs count contractions, two per multiply-add.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "graph/graph.h"

namespace weft {

struct ModelSummary {
  std::int64_t parameters = 0;         // tied ones once
  std::int64_t active_parameters = 0;  // used by one token: of experts only the share that is chosen
  Bytes parameter_bytes{};
  Flops flops_forward{}, pointwise_forward{};
  std::optional<Flops> flops_training = {};    // forward and backward products; absent when the graph cannot be trained
  std::optional<Bytes> activation_bytes = {};  // kept from forward for backward, nothing recomputed; absent likewise
  std::int64_t operators = 0, tensors = 0;
  std::int64_t unique_operators = 0;  // different signatures: what a profiler would have to measure
  std::vector<std::pair<std::string, std::int64_t>> operators_by_kind = {};  // most frequent first, ties by name

  bool operator==(const ModelSummary&) const = default;
};

// Cost: builds the training graph once.
ModelSummary summarize(const Graph& forward);

// A module, or a run of identical neighbours: layers.0 … layers.79 as one with 80 copies.
struct ModuleSummary {
  std::string name;                            // own name; the first one's in a run
  std::int64_t copies = 1;                     // identical neighbours, this one included; their names count up
  std::int64_t parameters = 0, operators = 0;  // of one copy, children included
  Flops flops_forward{};                       // of one copy, children included
  std::vector<ModuleSummary> children = {};  // only modules with operators; parameters of others belong to their parent

  bool operator==(const ModuleSummary&) const = default;
};

// The root module. Cost: linear in the graph.
ModuleSummary module_tree(const Graph& forward);

// A run of identical layers, in the order of the network; pipeline stages are cut from them.
struct LayerRun {
  std::string parent;  // "layers", "encoder.layers", "layer3"
  std::int64_t first = 0, count = 0;
  std::int64_t parameters = 0;  // of one
  Flops flops_forward{};        // of one

  bool operator==(const LayerRun&) const = default;
};
// The outermost numbered modules; runs of one are listed too.
std::vector<LayerRun> layer_runs(const Graph& forward);

}  // namespace weft
