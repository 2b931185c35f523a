// The strategy tree as a YAML file.
//
//   mesh:
//     axes: {pp: 2, dp: 2, tp: 4}                # major first
//     order: [tp, dp, pp]                        # of ranks, innermost first; default: the last axis first
//     devices: [0..15]                           # by rank; default: 0, 1, 2, …
//   schedule: {name: 1f1b, micro_batches: 16, interleave: 1, stages: [17, 15]}
//   sequence_parallel: {tp: s}                   # partial sums over tp are reduce-scattered along s
//   context: ring                                # gather (default), a2a, ring
//   rules:
//     - {match: "**", inputs: {dp: 0}, memory: {optimizer: {over: [dp], offload: cpu}}, recompute: selective}
//     - {match: tokens, inputs: {dp: {dim: 0, ratio: [3, 1]}}}                    # three quarters of the samples
//     - {match: layers.*, memory: {weights: {over: [dp], ratio: {dp: [3, 1]}}}}   # uneven shards
//     - {match: layers.*.attn.qkv, compute: {tp: n}}
//     - {match: layers.*.mlp.gate_up, compute: {tp: {axis: n, outer: 2, ratio: [3, 2, 2, 1]}}}
//     - {match: layers.*.mlp_norm, compute: {tp: none}}
//     - {match: embed.tokens, place: {degrees: {b: 2}, devices: [0, 1]}}
//
// A stage is a number of layers, a list of module globs, or {layers, modules, mesh}. The stages of one pipeline rank
// have meshes of the same devices, in any grid.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "strategy/tree.h"

namespace weft {

// Any text gives a strategy or an error "file:line: …"; never reads another file.
Result<Strategy> parse_strategy(std::string_view text, std::string_view file);
Result<Strategy> read_strategy(const std::string& path);

std::string to_yaml(const Strategy& strategy);  // parse∘print = identity

}  // namespace weft
