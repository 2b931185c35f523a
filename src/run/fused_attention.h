// Attention as one kernel of a GPU (FlashAttention, in libtorch 2.x): nothing of the size of queries times keys is kept.
#pragma once

#include "run/kernel.h"

namespace weft::runtime {

// Whether there is one for this part: 16-bit numbers on a GPU, all queries and keys of the heads, no bias by distance, no
// cap, one size of heads.
bool has_fused_attention(const Signature& signature, const AxisSlices& slices, const Tensor& query);

// Forward or backward, where there is one.
void fused_attention(Kernel& k);

}  // namespace weft::runtime
