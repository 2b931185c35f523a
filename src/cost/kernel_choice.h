// Which operators a software stack fuses into one kernel, and which are a sequence of elementary ones.
#pragma once

#include "base/recipe.h"
#include "strategy/stack.h"

namespace weft {

struct KernelChoice {
  bool attention = true, norm = true, cross_entropy = true, bias_activation = true, optimizer = true;
  bool accumulation = false, batch_norm = false, channels_last = true;
  // Seconds of uninterrupted calls, after which a pause lets the clock recover; 0: uninterrupted, as in training.
  double burst = 0;
  double product_rate = 1;
  int passes = 0;  // through memory over the result of a product, before the next one
  int attention_generation = 3;
  bool rotary = true;
  int softmax_keys = 0;  // most keys of a kernel that scales and masks scores and takes their softmax
  bool wide_logits = true;
  bool pointwise = false;  // part of the kernels before
  bool head_copies = false;
  bool autocast = false;
  int dense_dispatch = 0;  // tokens of a group whose rows are made by products with masks; 0: rows are moved
  bool weft = false;       // those of src/run
  // Casts of narrow products; and whether what they read is kept as it was cast.
  Recipe recipe = Recipe::Delayed;
  bool keeps_casts = true;
  bool router = true, permutation = true;  // choosing experts, and putting rows in their order
  bool pads_by_copy = false;               // rows of experts, for narrow products
};
KernelChoice kernels_of(const SoftwareStack& stack);

}  // namespace weft
