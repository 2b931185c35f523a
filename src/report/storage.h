// Who holds what between steps: weights, gradients and optimizer state, and the mesh axes that each is spread over.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compile/from_strategy.h"
#include "plan/plan.h"

namespace weft {

// The types that a kind of tensor is kept in from step to step, and how many elements in each.
struct KeptTypes {
  std::map<DType, double> elements = {};
  double parameters = 0;  // that it is kept of: all for weights, those that are trained for the rest

  std::string names() const;  // "bf16", "f32 ×3"
  double bytes_each() const;  // for every parameter
};
// Buffers have the types of the graph's tensors, so this is what a program keeps, however it is cut.
KeptTypes kept_types(const TrainingGraph& training, Stored kind);

struct HeldKind {
  Stored kind{};
  std::string types;         // "bf16", "f32 ×3"
  std::vector<Bytes> bytes;  // by pipeline rank, on one device
  // Mesh axes that cut it, and the share of its bytes (of the whole model) cut so; most first. No axes: whole
  // everywhere.
  std::vector<std::pair<std::vector<std::string>, double>> cuts;
};

// Weights, gradients, optimizer state, in this order; kinds that are not there are left out.
std::vector<HeldKind> held_kinds(const Plan& plan, const CompiledStrategy& compiled);

// "cut over tp, dp (99 %)"
std::string describe_cuts(const HeldKind& held);

}  // namespace weft
