// What layers of experts run beside their products: the choice of experts, and rows put in the experts' order and back.
#pragma once

#include "cost/kernel_sequence.h"

namespace weft {

// A Router, or its gradient.
void add_router(KernelSequence& kernels);
// A Dispatch or a Combine, or their gradients.
void add_permutation(KernelSequence& kernels);
// Rows of experts copied so that every expert has a multiple of what narrow products need, or back: around an
// ExpertLinear, where the stack does that by copies.
void pad_rows(KernelSequence& kernels);

}  // namespace weft
