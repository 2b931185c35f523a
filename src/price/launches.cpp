#include "price/launches.h"

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

}  // namespace weft
