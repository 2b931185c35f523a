// The time of one operator's local part: which kernels it runs as, and how long they take.
#pragma once

#include "cost/cost.h"
#include "cost/tuning.h"
#include "strategy/stack.h"

namespace weft {

// Which operators are one kernel in the stack, and which a sequence of plain ones.
struct KernelChoice {
  bool attention = true, norm = true, cross_entropy = true, bias_activation = true, optimizer = true;
  bool accumulation = false, batch_norm = false, channels_last = true;
  // Seconds for which calls follow each other, after which a pause lets the clock recover; 0: a step's, without end.
  double burst = 0;
  double product_rate = 1;
  int attention_generation = 3;
};
KernelChoice kernels_of(const SoftwareStack& stack);

ComputeCost operator_cost(const ComputeQuery& query, const Tuning& tuning, const KernelChoice& fused);

}  // namespace weft
