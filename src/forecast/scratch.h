// The workspace of an operator's kernels, and what they keep for backward beyond the graph's tensors.
#pragma once

#include "graph/graph.h"
#include "strategy/stack.h"

namespace weft {

// Bytes per element of the operator's largest operand. Fused kernels keep intermediate values in registers; unfused
// ones in memory, mostly as fp32 copies of 16-bit operands.
double scratch_per_element(const Signature& signature, const SoftwareStack& stack);

// Bytes per element that lie beside a tensor as long as it is saved: the int64 places of the greatest elements of
// max_pool2d_with_indices, and the activation that a gated unit of plain kernels multiplies by.
int beside_per_element(const Graph& graph, TensorId tensor, const SoftwareStack& stack);

}  // namespace weft
