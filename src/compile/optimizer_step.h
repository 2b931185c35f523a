// The optimizer's operators: each runs on every home of its parameter, in the layout of the optimizer state, and what
// it updates is stored again as it was: in place, gathered where the parameter is stored whole, or on the host.
#pragma once

#include "compile/parameter_tensors.h"
#include "compile/reuse.h"

namespace weft {

class OptimizerStep {
 public:
  // All are kept by reference.
  OptimizerStep(const Graph& graph, const Sequence& sequence, Program& program, const CurrentGroup& group,
                Position& position, TurnSplits& splits, Emitter& emitter, TensorBuffers& buffers,
                const ParameterTensors& tensors, ParameterHomes& homes, Reuse& reuse)
      : graph_(graph),
        sequence_(sequence),
        program_(program),
        group_(group),
        position_(position),
        splits_(splits),
        emitter_(emitter),
        buffers_(buffers),
        tensors_(tensors),
        homes_(homes),
        reuse_(reuse) {}

  // The operator of the turn on all homes. Scalars of other groups stay invalid among its inputs
  // (Lowering::write_main).
  Status optimize(TurnId turn);

 private:
  Status optimize_on(TurnId turn, Home& home);
  Result<BufferId> input(const SplitOp& split, OpId op, std::size_t operand, Home& home);
  Status publish(TurnId turn, TensorId updated, BufferId made, const Home& home);

  const Graph& graph_;
  const Sequence& sequence_;
  Program& program_;
  const CurrentGroup& group_;
  Position& position_;
  TurnSplits& splits_;
  Emitter& emitter_;
  TensorBuffers& buffers_;
  const ParameterTensors& tensors_;
  ParameterHomes& homes_;
  Reuse& reuse_;
};

}  // namespace weft
