#include "forecast/scratch.h"

#include <algorithm>

#include "graph/operators.h"

namespace weft {

double scratch_per_element(const Signature& signature, const SoftwareStack& stack) {
  constexpr double kWide = 4;  // bytes of an fp32 number
  const bool backward = !signature.gradient.empty();
  switch (signature.kind) {
    case OpKind::CrossEntropy: {
      // `logits.float()`: made to probabilities and then to their gradient in place (1 copy, Megatron-LM), or their
      // logarithms beside them and, backward, two gradients beside those (3, PyTorch). Backward, the program counts
      // the logits, which nothing keeps then, and the narrow gradient, which is made when the others are gone.
      if (stack.fused_cross_entropy.value) return 0;
      const double narrow = bits_of((backward ? signature.outputs : signature.inputs)[0].dtype) / 8.0;
      if (!stack.wide_logits.value) {
        // Their logarithms, and backward the gradient of those; under autocast nll_loss has an fp32 copy, and its gradient.
        const bool copies = stack.autocast.value && narrow < kWide;
        return backward ? (copies ? 2 * kWide : 2 * narrow) : narrow + (copies ? kWide : 0);
      }
      const double copies = kWide * stack.logit_copies.value;
      return backward ? std::max(copies, kWide + narrow) - 2 * narrow : std::max(kWide, copies - kWide);
    }
    case OpKind::WeighRows:
      // Rows times fp32 weights are fp32 by PyTorch's promotion. Backward, the incoming gradient, that of the rows and
      // the products to be summed are alive together, instead of the 16-bit gradient.
      if (stack.fused_bias_activation.value) return 0;
      return backward ? 3 * kWide - bits_of(signature.inputs[0].dtype) / 8.0 : kWide;
    default:
      return 0;
  }
}

int beside_per_element(const Graph& graph, TensorId tensor, const SoftwareStack& stack) {
  const OpId producer = graph.tensors()[tensor].producer;
  if (!producer.valid() || stack.weft_kernels.value) return 0;
  const Signature& signature = graph.signature(producer);
  if (!signature.gradient.empty()) return 0;
  if (signature.kind == OpKind::Pool2d) return signature.attrs.text("fn", "max") == "max" ? 8 : 0;
  const bool apart = signature.kind == OpKind::Glu && !stack.fused_bias_activation.value;
  return apart ? bits_of(signature.outputs[0].dtype) / 8 : 0;
}

}  // namespace weft
