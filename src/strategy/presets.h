// Named ways to split a model, each as rules of a strategy tree; presets combine by concatenating their rules.
//
// Rules name mesh axes, so a preset does not know their sizes. They are written as globs over layers
// (`layers.*.attn.qkv`) where all layers agree. Cost: linear in operators.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "strategy/tree.h"

namespace weft {

// Data parallelism: splits the samples of every input over the axes, major first. Inputs without samples stay whole.
std::vector<Rule> data_parallel(const Graph& graph, std::span<const std::string> axes);
// Context parallelism: splits the tokens of every sample too. Attention gathers keys and values or, with `AllToAll`,
// splits heads, and the linear after it splits tokens again; `Ring` has the rules of `Gather`, but keys and values
// rotate around the ring.
std::vector<Rule> context_parallel(const Graph& graph, const std::string& axis, ContextMode mode);
// ZeRO (Rajbhandari et al. 2020) over the axes: 1 optimizer state, 2 gradients too, 3 weights too (FSDP). Over only
// some of the data-parallel axes it is hybrid sharding (HSDP).
std::vector<Rule> zero(int stage, std::span<const std::string> axes);
// The same for the weights of experts alone, whose replicas may be on other devices than those of dense weights.
std::vector<Rule> expert_zero(const Graph& graph, int stage, std::span<const std::string> axes);
// Megatron's column- and row-parallel linears, vocabulary and head, found by structure (structure.h), over the axes,
// major first; linears of experts over axes of their own. `head_blocks`: heads are so many blocks, each of which is split:
// as many as all-to-alls of context parallelism hand out.
std::vector<Rule> tensor_parallel(const Graph& graph, std::span<const std::string> axes,
                                  std::span<const std::string> expert_axes, std::int64_t head_blocks = 1);
std::vector<Rule> tensor_parallel(const Graph& graph, const std::string& axis);  // all over one axis
// Expert parallelism: distributes whole experts over the axes, major first.
std::vector<Rule> expert_parallel(const Graph& graph, std::span<const std::string> axes);
// DLRM (Naumov et al. 2019): embedding tables split by columns over the axis, by rows where columns are too few,
// everything else data parallel over it.
std::vector<Rule> hybrid_tables(const Graph& graph, const std::string& axis, int degree);
// Splits height and width of images over the axes; an empty name leaves that dimension whole.
std::vector<Rule> spatial(const Graph& graph, const std::string& height_axis, const std::string& width_axis);
// FlexFlow's form of data parallelism: every operator is placed individually, its samples over all the devices; an
// operator without samples, or whose samples do not divide, on the first one. Searches over placements start from it.
std::vector<Rule> placed_data_parallel(const Graph& graph, std::span<const std::int64_t> devices);

}  // namespace weft
