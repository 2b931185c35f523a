#include "forecast/flops.h"

#include <vector>

namespace weft {
namespace {

OpId forward_of(const Graph& graph, OpId op) {
  const OpId forward = graph.ops()[op].forward;
  return forward.valid() ? forward : op;
}

// The product that a tensor comes from, through pointwise operators and views; invalid if none.
OpId product_behind(const Graph& graph, TensorId tensor) {
  for (OpId op = graph.tensors()[tensor].producer; op.valid(); op = graph.tensors()[graph.inputs(op)[0]].producer) {
    if (contraction_flops(graph.signature(op)).value > 0) return op;
    if (graph.inputs(op).empty()) break;
  }
  return {};
}

// Marks the products that read an operator's output, directly or through pointwise operators and views.
void mark_products_after(const Graph& graph, OpId op, std::vector<char>& marked) {
  for (TensorId output : graph.outputs(op))
    for (const Use& use : graph.uses(output)) {
      if (graph.ops()[use.op].phase != Phase::Forward) continue;
      if (contraction_flops(graph.signature(use.op)).value > 0) {
        marked[use.op.index()] = 1;
      } else {
        mark_products_after(graph, use.op, marked);
      }
    }
}

}  // namespace

StepFlops flops_of(const Plan& plan, const CompiledStrategy& compiled) {
  const Graph& graph = plan.training().graph;
  // Products whose size is the vocabulary's, and those under a causal mask; marked at their forward operator.
  std::vector<char> vocabulary(graph.ops().size(), 0), causal(graph.ops().size(), 0);
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const OpKind kind = graph.kind(op);
    if (kind == OpKind::CrossEntropy)
      if (const OpId product = product_behind(graph, graph.inputs(op)[0]); product.valid())
        vocabulary[product.index()] = 1;
    if (graph.signature(op).attrs.integer("causal", 0) == 0) continue;
    causal[op.index()] = 1;
    if (kind != OpKind::Softmax) continue;  // attention in separate kernels: scores before it, values after
    if (const OpId scores = product_behind(graph, graph.inputs(op)[0]); scores.valid()) causal[scores.index()] = 1;
    mark_products_after(graph, op, causal);
  }
  const double published = plan.model->vocabulary.stored > 0 ? static_cast<double>(plan.model->vocabulary.published) /
                                                                   static_cast<double>(plan.model->vocabulary.stored)
                                                             : 1;
  const auto flops = [&](OpId op) {
    const double all = contraction_flops(graph.signature(op)).value;
    return vocabulary[forward_of(graph, op).index()] ? all * published : all;
  };
  StepFlops once;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase == Phase::Step) break;
    once.model.value += flops(op);
    once.causal.value += flops(op) * (causal[forward_of(graph, op).index()] ? 0.5 : 1.0);
  }
  std::vector<char> again(graph.ops().size(), 0);
  for (const StageProgram& stage : compiled.program.stages)
    for (InstructionId id : stage.backward)
      if (const auto* compute = std::get_if<Compute>(&compiled.program.instructions[id].what))
        if (graph.ops()[compute->op].phase == Phase::Forward) again[compute->op.index()] = 1;
  for (OpId op : graph.ops().ids())
    if (again[op.index()]) once.recomputed.value += flops(op);

  // The graph has one micro-batch of all replicas.
  const double times = static_cast<double>(plan.batch.global_batch) / static_cast<double>(plan.batch.graph_batch());
  return {once.model * times, once.causal * times, once.recomputed * times};
}

}  // namespace weft
