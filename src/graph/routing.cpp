#include "graph/routing.h"

namespace weft {

OpId routed_by(const Graph& graph, TensorId rows) {
  const auto routes = [&](OpId op) { return graph.kind(op) == OpKind::Dispatch || graph.kind(op) == OpKind::Combine; };
  if (const OpId producer = graph.tensors()[rows].producer; producer.valid() && routes(producer)) return producer;
  for (const auto& use : graph.uses(rows))
    if (routes(use.op)) return use.op;
  return {};
}

const Operand* ragged_rows(const Signature& signature) {
  const std::string_view side = signature.attrs.text("ragged", "");
  if (signature.kind != OpKind::ExpertLinear || side.empty() || signature.gradient == "grad_weight") return nullptr;
  // What the first product reads and the second makes; backward their gradients.
  const bool reads = (side == "in") == signature.gradient.empty();
  return reads ? &signature.inputs[0] : &signature.outputs[0];
}

}  // namespace weft
