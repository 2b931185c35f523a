// Attention as kernels: one fused kernel forward and one backward, or products with a softmax of all scores between.
#pragma once

#include "cost/kernel_sequence.h"

namespace weft {

void add_attention(KernelSequence& kernels);

// A softmax operator; if it is of attention scores (causal), with their scale and mask.
void add_softmax(KernelSequence& kernels);

}  // namespace weft
