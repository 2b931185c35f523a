// The workspace of an operator's kernels.
#pragma once

#include "graph/signature.h"
#include "strategy/stack.h"

namespace weft {

// Bytes per element of the operator's largest operand. Fused kernels keep intermediate values in registers; unfused
// ones in memory, mostly as fp32 copies of 16-bit operands.
double scratch_per_element(const Signature& signature, const SoftwareStack& stack);

}  // namespace weft
