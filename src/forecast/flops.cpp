#include "forecast/flops.h"

#include <algorithm>
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

// Which of a product's FLOPs count: for attention, the share of its (query, key) pairs.
struct Counted {
  double full = 1;    // without regard to the causal mask
  double causal = 1;  // with it
};

// Of attention, or of a softmax over its scores. A query counts the keys of its window, r = window/keys of all; under a
// causal mask, whose first queries have fewer, r·(1 − r/2): half without a window.
Counted counted_pairs(const Graph& graph, OpId op) {
  const Signature& signature = graph.signature(op);
  const bool attention = graph.kind(op) == OpKind::Attention;
  if (!attention && graph.kind(op) != OpKind::Softmax) return {};
  const auto keys =
      static_cast<double>(attention ? signature.axes[static_cast<std::size_t>(signature.axis_named("t"))].size
                                    : graph.tensors()[graph.inputs(op)[0]].type.shape.back());
  const auto window = static_cast<double>(signature.attrs.integer("window", 0));
  const double full = window > 0 ? std::min(1.0, window / keys) : 1;
  return {full, signature.attrs.integer("causal", 0) != 0 ? full * (1 - full / 2) : full};
}

// Counts so the products that read an operator's output, directly or through pointwise operators and views.
void count_products_after(const Graph& graph, OpId op, Counted share, std::vector<Counted>& counted) {
  for (TensorId output : graph.outputs(op))
    for (const Use& use : graph.uses(output)) {
      if (graph.ops()[use.op].phase != Phase::Forward) continue;
      if (contraction_flops(graph.signature(use.op)).value > 0) {
        counted[use.op.index()] = share;
      } else {
        count_products_after(graph, use.op, share, counted);
      }
    }
}

}  // namespace

StepFlops flops_of(const Plan& plan, const CompiledStrategy& compiled) {
  const Graph& graph = plan.training().graph;
  // Products whose size is the vocabulary's, and the share of each that counts; at their forward operator.
  std::vector<char> vocabulary(graph.ops().size(), 0);
  std::vector<Counted> counted(graph.ops().size());
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const OpKind kind = graph.kind(op);
    if (kind == OpKind::CrossEntropy)
      if (const OpId product = product_behind(graph, graph.inputs(op)[0]); product.valid())
        vocabulary[product.index()] = 1;
    const Counted share = counted_pairs(graph, op);
    if (share.causal == 1) continue;
    counted[op.index()] = share;
    if (kind != OpKind::Softmax) continue;  // attention in separate kernels: scores before it, values after
    if (const OpId scores = product_behind(graph, graph.inputs(op)[0]); scores.valid()) counted[scores.index()] = share;
    count_products_after(graph, op, share, counted);
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
    const Counted& share = counted[forward_of(graph, op).index()];
    once.model.value += flops(op) * share.full;
    once.causal.value += flops(op) * share.causal;
  }
  std::vector<char> again(graph.ops().size(), 0);
  for (const StageProgram& stage : compiled.program.stages)
    for (InstructionId id : stage.backward)
      if (const auto* compute = std::get_if<Compute>(&compiled.program.instructions[id].what))
        if (graph.ops()[compute->op].phase == Phase::Forward) again[compute->op.index()] = 1;
  for (OpId op : graph.ops().ids())
    if (again[op.index()]) once.recomputed.value += flops(op) * counted[op.index()].full;

  // The graph has one micro-batch of all replicas.
  const double times = static_cast<double>(plan.batch.global_batch) / static_cast<double>(plan.batch.graph_batch());
  return {once.model * times, once.causal * times, once.recomputed * times};
}

}  // namespace weft
