#include "graph/routing.h"

namespace weft {

OpId routed_by(const Graph& graph, TensorId rows) {
  const auto routes = [&](OpId op) { return graph.kind(op) == OpKind::Dispatch || graph.kind(op) == OpKind::Combine; };
  if (const OpId producer = graph.tensors()[rows].producer; producer.valid() && routes(producer)) return producer;
  for (const auto& use : graph.uses(rows))
    if (routes(use.op)) return use.op;
  return {};
}

}  // namespace weft
