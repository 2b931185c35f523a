#include "reference/kernels.h"

#include "reference/kernel_context.h"

namespace weft::reference {

void run_kernel(const Signature& signature, const AxisSlices& slices, std::span<const Block> inputs,
                std::span<Block> outputs) {
  const Kernel kernel(signature, slices, inputs, outputs);
  for (auto* family : {run_contraction, run_attention, run_recurrent, run_normalisation, run_pointwise, run_movement,
                       run_routing, run_training})
    if (family(kernel)) return;
  WEFT_CHECK(false, "no reference kernel for {} {}", name_of(signature.kind), signature.gradient);
}

std::vector<Block> run_whole(const Signature& signature, std::span<const Block> inputs) {
  const AxisSlices slices = whole_axes(signature);
  std::vector<Block> outputs;
  for (const Operand& output : signature.outputs) outputs.emplace_back(signature, output, slices);
  run_kernel(signature, slices, inputs, outputs);
  return outputs;
}

}  // namespace weft::reference
