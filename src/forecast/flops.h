// The FLOPs of a step by which MFU and HFU are measured: matrix products alone, two per multiply-add.
#pragma once

#include "plan/plan.h"

namespace weft {

struct StepFlops {
  Flops model;       // forward and backward without recomputation, published vocabulary, attention in full
  Flops causal;      // the same with half of every causal attention
  Flops recomputed;  // forward again, in the backward pass
};

// Cost: linear in operators and instructions.
StepFlops flops_of(const Plan& plan, const CompiledStrategy& compiled);

}  // namespace weft
