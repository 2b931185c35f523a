#include "price/launches.h"

#include "graph/autocast.h"
#include "graph/operators.h"

namespace weft {

int launches_of(const Signature& signature, const SoftwareStack& stack) {
  const bool backward = !signature.gradient.empty();
  if (stack.weft_kernels.value) return 1;
  switch (signature.kind) {
    case OpKind::Attention:  // two products, scale, mask, softmax, dropout; backward twice the products
      return stack.fused_attention.value ? 1 : backward ? 8 : 6;
    case OpKind::RmsNorm:
    case OpKind::LayerNorm:  // to fp32, square, mean, sum, root, product, back, product; backward about one more each
      return stack.fused_norm.value ? 1 : backward ? 14 : 8;
    case OpKind::CrossEntropy:  // to fp32, log-softmax, loss; backward the same three
      return stack.fused_cross_entropy.value ? 1 : 3;
    case OpKind::Glu:  // activation and product; backward one more product
      return stack.fused_bias_activation.value ? 1 : backward ? 3 : 2;
    case OpKind::Rotary:
      return stack.fused_rotary.value ? 1 : 5;
    case OpKind::Binary:
      return stack.fused_pointwise.value ? 0 : 1;
    case OpKind::Bias:
      return backward || (adds_bias(signature) && !stack.fused_bias_activation.value) ? 1 : 0;
    case OpKind::Softmax:
      return !stack.head_copies.value || stack.fused_bias_activation.value ? 1 : backward ? 2 : 3;
    case OpKind::Matmul:
      return 1 + (stack.head_copies.value ? head_copies_of(signature) : 0);
    case OpKind::Router:  // as many as it has passes (cost/routing_kernels.cpp)
      return stack.fused_router.value ? 1 : backward ? 5 : 9;
    case OpKind::Dispatch:  // mask turned, found, rows; backward zeros and sums
      return stack.fused_permutation.value || stack.dense_dispatch.value > 0 ? 1 : backward ? 2 : 5;
    case OpKind::Combine:  // rows times weights, zeros, sums; backward rows and their product
      return stack.fused_permutation.value || stack.dense_dispatch.value > 0 ? 1 : backward ? 2 : 3;
    default:
      return 1;
  }
}

int weight_casts_of(const Signature& signature, const SoftwareStack& stack) {
  return stack.autocast.value && casts_weight(signature) ? 1 : 0;
}

namespace {

// Calls without a kernel that go with a forward operator: the views that part q, k and v into heads and put these side
// by side again (view, split, transposes, reshape, in tools/measure_steps.py as in transformers), and the count of
// batches that BatchNorm2d keeps.
int calls_beside(const Signature& signature) {
  switch (signature.kind) {
    case OpKind::Attention:
      return 8;
    case OpKind::Matmul:  // scores, and what they weigh
      return 4;
    case OpKind::BatchNorm:
      return 1;
    default:
      return 0;
  }
}

// Calls that an operator makes of others: batch norm of channels-last 16-bit images clears what its statistics are summed
// in, takes and updates these and transforms (native_batch_norm in measurements/h200/steps_kernels.csv); cuDNN's is one.
int calls_inside(const Signature& signature, const SoftwareStack& stack) {
  const bool native = signature.kind == OpKind::BatchNorm && stack.channels_last.value &&
                      !stack.fused_batch_norm.value && !stack.weft_kernels.value &&
                      bits_of(signature.inputs[0].dtype) == 16;
  return !native ? 0 : signature.gradient.empty() ? 3 : 2;
}

}  // namespace

Seconds host_time_of(const Graph& graph, OpId op, const SoftwareStack& stack) {
  const Signature& signature = graph.signature(op);
  const Seconds cast = stack.host_per_cast.value;
  const Phase phase = graph.ops()[op].phase;
  const Seconds each = is_cast(signature)         ? cast
                       : phase == Phase::Forward  ? stack.host_per_operator.value
                       : phase == Phase::Backward ? stack.host_per_gradient.value
                                                  : stack.host_per_update.value;
  const int beside = phase == Phase::Forward && !stack.weft_kernels.value ? calls_beside(signature) : 0;
  const int inside = weight_casts_of(signature, stack) + calls_inside(signature, stack);
  return {each.value * (launches_of(signature, stack) + beside) + cast.value * inside};
}

}  // namespace weft
