#include "forecast/scratch.h"

#include "graph/operators.h"

namespace weft {

double scratch_per_element(const Signature& signature, const SoftwareStack& stack) {
  constexpr double kWide = 4;  // bytes of an fp32 number
  const bool backward = !signature.gradient.empty();
  switch (signature.kind) {
    case OpKind::CrossEntropy:
      // `logits.float()`, converted to probabilities and then to their gradient in place (Megatron-LM's
      // cross_entropy.py); log_softmax keeps as much.
      return stack.fused_cross_entropy.value ? 0 : kWide;
    case OpKind::WeighRows:
      // Rows times fp32 weights are fp32 by PyTorch's promotion. Backward, the incoming gradient, that of the rows and
      // the products to be summed are alive together, instead of the 16-bit gradient.
      if (stack.fused_bias_activation.value) return 0;
      return backward ? 3 * kWide - bits_of(signature.inputs[0].dtype) / 8.0 : kWide;
    default:
      return 0;
  }
}

}  // namespace weft
