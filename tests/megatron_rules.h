// Megatron's rules for the models of the zoo: degrees of parallelism, the splits that follow from them, and
// recomputation.
#pragma once

#include <string>

#include "graph/training.h"
#include "layout/sharding.h"

namespace weft {

struct Degrees {
  int dp = 1, tp = 1, cp = 1, ep = 1, pp = 1;
  bool sequence_parallel = false;
  int zero = 0;
  std::string schedule = "1f1b";
  int chunks = 0;
  int micro_batches = 2;
  std::string recompute = "none";
};

// The splits of operators, found by name.
inline ShardingChoices megatron(const Graph& graph, const Mesh& mesh, const Degrees& degrees) {
  ShardingChoices choices;
  choices.ops.resize(mesh.axes().size());
  choices.inputs.resize(mesh.axes().size());
  choices.reduce_onto.resize(mesh.axes().size());
  const auto dp = static_cast<std::size_t>(mesh.axis_named("dp")), ep = static_cast<std::size_t>(mesh.axis_named("ep"));
  const auto cp = static_cast<std::size_t>(mesh.axis_named("cp")), tp = static_cast<std::size_t>(mesh.axis_named("tp"));
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    if (tensor.kind != TensorKind::Input || tensor.type.shape.size() < 2) continue;
    if (tensor.type.shape[0] > 1) choices.inputs[dp][id] = choices.inputs[ep][id] = {0};
    if (tensor.type.shape[1] > 1) choices.inputs[cp][id] = {1};
  }
  if (degrees.sequence_parallel) choices.reduce_onto[tp] = "s";
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const std::string name = graph.name(op);
    const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
    if (ends("attn.qkv") || ends("mlp.up") || ends("head.logits")) choices.ops[tp][op] = {"n"};
    if (ends("mlp.gate_up")) choices.ops[tp][op] = {"n", 2};
    if (ends("attn.out") || ends("mlp.down")) choices.ops[tp][op] = {"k"};
    if (name == "embed.tokens") choices.ops[tp][op] = {"v"};
    if (graph.kind(op) == OpKind::ExpertLinear) choices.ops[ep][op] = {"e"};
  }
  return choices;
}

// full: each layer is a region; selective: the core of attention.
inline RecomputeRegions regions_of(const Graph& graph, const std::string& how) {
  RecomputeRegions regions = RecomputeRegions::none(graph);
  for (OpId op : graph.ops().ids()) {
    const std::string name = graph.name(op);
    if (graph.ops()[op].phase != Phase::Forward || !name.starts_with("layers.")) continue;
    const int layer = std::stoi(name.substr(7));
    if (how == "full" || (how == "selective" && name.ends_with("attn.core"))) regions.region[op] = layer;
  }
  return regions;
}

}  // namespace weft
