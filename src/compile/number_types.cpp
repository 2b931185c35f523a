#include "compile/number_types.h"

#include <algorithm>

#include "program/program.h"

namespace weft {

namespace {

// Whether experts are chosen by what the linear makes: frameworks compute that in bf16 or fp32 (Megatron Core's
// TopKRouter is no linear of Transformer Engine's).
bool chooses_experts(const Graph& graph, OpId op) {
  const OpId forward = graph.ops()[op].forward.valid() ? graph.ops()[op].forward : op;
  for (TensorId made : graph.outputs(forward))
    for (const Use& use : graph.uses(made)) {
      if (graph.kind(use.op) == OpKind::Router) return true;
      if (graph.kind(use.op) == OpKind::Bias && graph.ops()[use.op].phase == Phase::Forward)
        for (TensorId shifted : graph.outputs(use.op))
          for (const Use& next : graph.uses(shifted))
            if (graph.kind(next.op) == OpKind::Router) return true;
    }
  return false;
}

}  // namespace

std::optional<Arithmetic> products_of(const NumberTypes& types, const Graph& graph, OpId op) {
  const Signature& signature = graph.signature(op);
  if (!types.products || signature.inputs.empty() || signature.contractions.empty()) return std::nullopt;
  if (*types.products == Arithmetic::kTf32)
    return signature.inputs[0].dtype == DType::F32 ? types.products : std::nullopt;
  if (signature.kind != OpKind::Linear && signature.kind != OpKind::ExpertLinear) return std::nullopt;
  if (types.wide_weight_gradients && signature.gradient == "grad_weight") return std::nullopt;
  return graph.name(op).find("layers.") == 0 && !chooses_experts(graph, op) ? types.products : std::nullopt;
}

std::optional<DType> gathered_type(const NumberTypes& types, const Graph& graph, OpId op) {
  return types.gathers_casts ? factor_type(products_of(types, graph, op)) : std::nullopt;
}

std::optional<DType> gathered_weight_type(const NumberTypes& types, const Graph& graph, TensorId weight) {
  const TensorId stored = graph.tensors()[weight].storage;
  if (!types.gathers_weights || graph.tensors()[stored].kind != TensorKind::Parameter) return std::nullopt;
  std::optional<DType> narrow;
  for (const Use& use : graph.uses(stored)) {
    if (graph.ops()[use.op].phase == Phase::Step) continue;
    narrow = factor_type(products_of(types, graph, use.op));
    if (!narrow) return std::nullopt;
  }
  return narrow;
}

IdVec<TensorId, std::optional<DType>> held_types(const NumberTypes& types, const Graph& graph) {
  const std::optional<DType> narrow = factor_type(types.products);
  if (!narrow || !types.keeps_casts) return {};
  IdVec<OpId, char> rounds(graph.ops().size(), 0);
  for (OpId op : graph.ops().ids()) rounds[op] = products_of(types, graph, op).has_value();
  IdVec<TensorId, char> viewed(graph.tensors().size(), 0);
  for (TensorId id : graph.tensors().ids())
    if (const TensorId storage = graph.tensors()[id].storage; storage != id) viewed[storage] = viewed[id] = 1;
  IdVec<TensorId, std::optional<DType>> held(graph.tensors().size());
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    const auto uses = graph.uses(id);
    if (!tensor.producer.valid() || viewed[id] || uses.empty() || !is_floating(tensor.type.dtype)) continue;
    if (graph.kind(tensor.producer) == OpKind::Dispatch) continue;
    if (std::all_of(uses.begin(), uses.end(), [&](const Use& use) { return rounds[use.op] != 0; })) held[id] = narrow;
  }
  return held;
}

}  // namespace weft
