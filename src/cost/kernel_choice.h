// Which operators are one kernel in a software stack, and which a sequence of plain ones.
#pragma once

#include "strategy/stack.h"

namespace weft {

struct KernelChoice {
  bool attention = true, norm = true, cross_entropy = true, bias_activation = true, optimizer = true;
  bool accumulation = false, batch_norm = false, channels_last = true;
  // Seconds for which calls follow each other, after which a pause lets the clock recover; 0: a step's, without end.
  double burst = 0;
  double product_rate = 1;
  int attention_generation = 3;
};
KernelChoice kernels_of(const SoftwareStack& stack);

}  // namespace weft
