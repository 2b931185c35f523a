// Convolutions as kernels: an implicit product, Winograd's transforms, or direct convolution of many small groups.
#pragma once

#include "cost/kernel_sequence.h"

namespace weft {

void add_convolution(KernelSequence& kernels);

}  // namespace weft
