// Convolutions as kernels: an implicit product, Winograd's transforms, or plain units that go over many small groups.
#pragma once

#include "cost/kernel_sequence.h"

namespace weft {

void add_convolution(KernelSequence& kernels);

}  // namespace weft
