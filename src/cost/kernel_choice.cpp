#include "cost/kernel_choice.h"

namespace weft {

KernelChoice kernels_of(const SoftwareStack& stack) {
  return {.attention = stack.fused_attention.value,
          .norm = stack.fused_norm.value,
          .cross_entropy = stack.fused_cross_entropy.value,
          .bias_activation = stack.fused_bias_activation.value,
          .optimizer = stack.fused_optimizer.value,
          .accumulation = stack.fused_accumulation.value,
          .batch_norm = stack.fused_batch_norm.value,
          .channels_last = stack.channels_last.value,
          .product_rate = stack.product_rate.value,
          .passes = stack.passes_between.value,
          .attention_generation = stack.attention_generation.value,
          .rotary = stack.fused_rotary.value,
          .softmax_keys = stack.softmax_keys.value,
          .wide_logits = stack.wide_logits.value,
          .pointwise = stack.fused_pointwise.value,
          .head_copies = stack.head_copies.value,
          .autocast = stack.autocast.value,
          .dense_dispatch = stack.dense_dispatch.value,
          .weft = stack.weft_kernels.value,
          .recipe = stack.recipe.value,
          .keeps_casts = stack.keeps_casts.value && !traits_of(stack.recipe.value).of_rows,
          .router = stack.fused_router.value,
          .permutation = stack.fused_permutation.value,
          .pads_by_copy = stack.pads_by_copy.value};
}

}  // namespace weft
