// Attention as kernels: one fused kernel each way, or products with a softmax of all scores between them.
#pragma once

#include "cost/kernel_sequence.h"

namespace weft {

void add_attention(KernelSequence& kernels);

// A softmax by itself; of scores (causal) it comes with their scale and mask.
void add_softmax(KernelSequence& kernels);

}  // namespace weft
