// Which operators a software stack fuses into one kernel, and which are a sequence of elementary ones.
#pragma once

#include "strategy/stack.h"

namespace weft {

struct KernelChoice {
  bool attention = true, norm = true, cross_entropy = true, bias_activation = true, optimizer = true;
  bool accumulation = false, batch_norm = false, channels_last = true;
  // Seconds of uninterrupted calls, after which a pause lets the clock recover; 0: uninterrupted, as in training.
  double burst = 0;
  double product_rate = 1;
  int attention_generation = 3;
};
KernelChoice kernels_of(const SoftwareStack& stack);

}  // namespace weft
