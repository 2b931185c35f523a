#include "compile/number_types.h"

namespace weft {

std::optional<Arithmetic> products_of(const NumberTypes& types, const Graph& graph, OpId op) {
  const Signature& signature = graph.signature(op);
  if (!types.products || signature.inputs.empty() || signature.contractions.empty()) return std::nullopt;
  if (*types.products == Arithmetic::kTf32)
    return signature.inputs[0].dtype == DType::F32 ? types.products : std::nullopt;
  if (signature.kind != OpKind::Linear && signature.kind != OpKind::ExpertLinear) return std::nullopt;
  return graph.name(op).find("layers.") == 0 ? types.products : std::nullopt;
}

}  // namespace weft
