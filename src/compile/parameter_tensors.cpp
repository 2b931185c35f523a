#include "compile/parameter_tensors.h"

#include "base/check.h"

namespace weft {

ParameterTensors::ParameterTensors(const TrainingGraph& training, const Sequence& sequence)
    : parameter_of(training.graph.tensors().size()),
      gradient_of(training.graph.tensors().size()),
      optimized_by(training.graph.ops().size()),
      terms_of(training.graph.tensors().size()) {
  const Graph& graph = training.graph;
  IdVec<TensorId, TensorId> owner(graph.tensors().size());  // the parameter of a gradient, a state, an update of them
  for (const auto& [parameter, sum] : training.accumulated) {
    const TensorId gradient = graph.tensors()[sum].storage;
    parameter_of[gradient] = owner[gradient] = owner[parameter] = parameter;
    gradient_of[parameter] = gradient;
  }
  // An operator may come before the one that shows whose state it reads: LAMB takes the norm of a master copy first.
  const auto find_owners = [&](OpId op) {
    const TensorId parameter = owner[graph.tensors()[graph.inputs(op).front()].storage];
    if (!parameter.valid()) return parameter;
    for (TensorId input : graph.inputs(op))
      if (!graph.tensors()[input].producer.valid() && graph.tensors()[input].kind == TensorKind::State)
        owner[input] = parameter;
    for (TensorId output : graph.outputs(op)) owner[graph.tensors()[output].storage] = parameter;
    return parameter;
  };
  for (TurnId turn : sequence.turns().ids())
    if (sequence.turns()[turn].kind == TurnKind::Optimizer) find_owners(sequence.turns()[turn].op);
  for (TurnId turn : sequence.turns().ids()) {
    const OpId op = sequence.turns()[turn].op;
    const TurnKind kind = sequence.turns()[turn].kind;
    if (kind == TurnKind::Accumulate) terms_of[graph.tensors()[graph.outputs(op)[0]].storage].push_back(turn);
    if (kind != TurnKind::Optimizer) continue;
    optimized_by[op] = find_owners(op);
    WEFT_CHECK(optimized_by[op].valid(), "{} works on no parameter", graph.name(op));
  }
}

}  // namespace weft
