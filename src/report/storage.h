// Who holds what between steps: weights, gradients and optimizer state, and the mesh axes that each is spread over.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compile/from_strategy.h"
#include "plan/plan.h"

namespace weft {

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
