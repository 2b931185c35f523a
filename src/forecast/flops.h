// The FLOPs of a step by which MFU and HFU are measured: matrix products alone, two per multiply-add.
#pragma once

#include "plan/plan.h"

namespace weft {

struct StepFlops {
  Flops model;   // forward and backward without recomputation, published vocabulary, attention in full or in its window
  Flops causal;  // the same without the masked pairs of causal attention
  Flops recomputed;  // forward again, in the backward pass
};

// Cost: linear in operators and instructions.
StepFlops flops_of(const Plan& plan, const CompiledStrategy& compiled);

}  // namespace weft
