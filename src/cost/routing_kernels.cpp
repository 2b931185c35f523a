#include "cost/routing_kernels.h"

#include <algorithm>

#include "graph/operators.h"
#include "graph/routing.h"

namespace weft {
namespace {

// GShard's einsums with a mask of (token, expert, row of the expert's capacity) in every group of tokens: forward the
// rows of the experts or their sums, backward the gradients of what was not a mask of ones. The mask itself is made of
// one-hot choices and positions in two passes over fp32.
void add_dense_dispatch(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const Signature& signature = part.signature();
  // Of rows and of tokens: the operand of experts has a capacity.
  const double hidden = part.extent("k");
  const double rows = part.extent("e") * part.extent("c") * part.extent("b") * part.extent("n0") * part.extent("n1");
  const double tokens = part.extent("t") * part.extent("b") * part.extent("n0") * part.extent("n1");
  const double group = std::min<double>(kernels.choice.dense_dispatch, std::max(1.0, tokens));
  const double groups = tokens / group, slots = rows / groups, width = width_of(signature.outputs[0].dtype);
  const bool makes_rows = (signature.kind == OpKind::Dispatch) != part.backward() || signature.gradient == "grad_y";
  Product product{.batch = groups};
  if (signature.gradient == "grad_weights") {
    product.m = group, product.n = slots, product.k = hidden;
  } else if (makes_rows) {
    product.m = slots, product.n = hidden, product.k = group;
  } else {
    product.m = group, product.n = hidden, product.k = slots;
  }
  product.bytes = groups * (group * slots + (group + slots) * hidden) * width;
  product.alignment = std::max(alignment_of(hidden * width), alignment_of(slots * width));
  kernels.add_product(product);
  constexpr double kMaskBytes = 2 * 4;
  if (!part.backward()) kernels.add_stream(kMaskBytes * groups * group * slots, kernels.tuning.stream.value);
}

// Tokens of this device.
double tokens_of(const LocalPart& part) {
  double tokens = part.extent("t") * part.extent("b");
  for (const char* group : {"n0", "n1", "n2", "n3"}) tokens *= part.extent(group);
  return tokens;
}

}  // namespace

void add_router(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  if (kernels.choice.router) return kernels.add_pass(Pass::Gather, part.bytes());
  // Megatron Core's topk_routing_with_score_function, all over (token, expert) in fp32: scores, the best, and what is
  // not chosen set to zero in weights and in a mask, which is counted by expert; backward the same values put back into
  // a zeroed tensor, and the gradient of the scores.
  constexpr int kForward = 9, kBackward = 5;
  const double wide = part.bytes(part.backward() ? part.signature().outputs[0] : part.signature().inputs[0]) * 4 /
                      width_of(part.signature().inputs[0].dtype);
  for (int pass = part.backward() ? kBackward : kForward; pass > 0; --pass)
    kernels.add_stream(2 * wide, kernels.tuning.stream.value);
}

void add_permutation(KernelSequence& kernels) {
  const LocalPart& part = kernels.part;
  const KernelChoice& choice = kernels.choice;
  if (choice.dense_dispatch > 0) return add_dense_dispatch(kernels);
  const bool dispatches = part.signature().kind == OpKind::Dispatch;
  if (choice.permutation || (part.signature().gradient == "grad_weights"))
    return kernels.add_pass(Pass::Gather, part.bytes());
  const double rows = part.extent("e") * part.extent("b") * part.extent("c") *
                      (part.extent("n0") * part.extent("n1") * part.extent("n2") * part.extent("n3"));
  const double width = width_of(part.signature().outputs[0].dtype), moved = rows * part.extent("k") * width;
  if (dispatches != part.backward()) {
    // Rows by index. Forward the mask of choices is turned, and what it holds found and written as indices
    // (masked_select: a count, a sum over counts, the writing).
    if (dispatches) {
      constexpr double kIndex = 8;
      const double mask = tokens_of(part) * static_cast<double>(part.signature().attrs.integer("experts", 1));
      kernels.add_stream(2 * mask, kernels.tuning.stream.value);
      for (int pass = 0; pass < 3; ++pass) kernels.add_stream(mask + rows * kIndex, kernels.tuning.stream.value);
    } else if (part.signature().attrs.integer("weighed", 0) == 0) {
      kernels.add_stream(2 * moved, kernels.tuning.stream.value);  // the gradients of rows times their weights
    }
    return kernels.add_pass(Pass::Gather, part.bytes());
  }
  // Sums of rows by index into zeros (scatter_add, index_add): read, add, write.
  if (!dispatches && part.signature().attrs.integer("weighed", 0) == 0)
    kernels.add_stream(2 * moved, kernels.tuning.stream.value);  // rows times their weights
  kernels.add_stream(part.bytes_out(), kernels.tuning.stream.value);
  kernels.add_pass(Pass::Scatter, 3 * moved, rows, rows * part.extent("k"));
}

void pad_rows(KernelSequence& kernels) {
  const Operand* const rows = ragged_rows(kernels.part.signature());
  const bool narrow = kernels.arithmetic == Arithmetic::kFp8 || kernels.arithmetic == Arithmetic::kFp4;
  if (!kernels.choice.pads_by_copy || !narrow || rows == nullptr) return;
  kernels.add_stream(2 * kernels.part.bytes(*rows), kernels.tuning.gather.value);
}

}  // namespace weft
