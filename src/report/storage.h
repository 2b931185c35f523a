// Persistent memory: weights, gradients and optimizer state, and the mesh axes over which each is sharded.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compile/from_strategy.h"
#include "plan/plan.h"

namespace weft {

// The element types in which a kind of tensor is kept between steps, and the number of elements in each.
struct KeptTypes {
  std::map<DType, double> elements = {};
  double parameters = 0;  // parameters it is kept for: all for weights, trained ones otherwise

  std::string names() const;  // "bf16", "f32 ×3"
  double bytes_each() const;  // bytes per parameter
};
// Buffers have the types of the graph's tensors, so this holds for every sharding of the program.
KeptTypes kept_types(const TrainingGraph& training, Stored kind);

struct HeldKind {
  Stored kind{};
  std::string types;         // "bf16", "f32 ×3"
  std::vector<Bytes> bytes;  // by pipeline rank, on one device
  // Sets of mesh axes that shard it, and the share of its bytes (of the whole model) sharded so; largest first. No
  // axes: replicated.
  std::vector<std::pair<std::vector<std::string>, double>> cuts;
};

// Weights, gradients, optimizer state, in this order; absent kinds are left out.
std::vector<HeldKind> held_kinds(const Plan& plan, const CompiledStrategy& compiled);

// "cut over tp, dp (99 %)"
std::string describe_cuts(const HeldKind& held);

}  // namespace weft
