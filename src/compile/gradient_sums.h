// How the gradient of a parameter accumulates over the terms of a micro-batch and over micro-batches, and how the sum is
// reduced among data-parallel devices.
//
// Gradients accumulate in place, on each home of the parameter for itself, in the layout in which they are made; terms
// made in another layout have a sum of their own, so that each is reduced once, when all terms of the step are in.
// Where gradients are sharded (ZeRO-2, 3), the terms of one micro-batch are added up so, and their sum is
// reduce-scattered every micro-batch.
#pragma once

#include <vector>

#include "compile/parameter_tensors.h"
#include "compile/reuse.h"

namespace weft {

class GradientSums {
 public:
  // All are kept by reference.
  GradientSums(const Graph& graph, const Sequence& sequence, const CompileOptions& options, Program& program,
               const CurrentGroup& group, Position& position, Origins& origins, const Differences& differences,
               Passages& passages, TurnSplits& splits, Emitter& emitter, TensorBuffers& buffers,
               const ParameterTensors& tensors, ParameterHomes& homes)
      : graph_(graph),
        sequence_(sequence),
        options_(options),
        program_(program),
        group_(group),
        position_(position),
        origins_(origins),
        differences_(differences),
        passages_(passages),
        splits_(splits),
        emitter_(emitter),
        buffers_(buffers),
        tensors_(tensors),
        homes_(homes) {}

  // Adds the term of an event, and reduces the sum if it was the last.
  Status accumulate(const OperandUse& event, EventCode& code);

  // A parameter's group is lowered again: finds the homes that get other terms than before.
  void begin_change(GroupId group);
  // Whether a term is added as it was: it and the sum it is added to are what they were.
  bool stays(const OperandUse& event, const Passage& old);
  // Records in its home a term whose passage stays.
  void keep(const OperandUse& event, const Passage& old);

 private:
  // What an accumulation adds: `gradient` to the tensor `sum`, the gradient of `parameter`.
  struct Term {
    OpId op;
    TensorId gradient, sum, parameter;
    bool last = false;  // of all terms of the micro-batch, on all homes
  };
  Term term_of(const OperandUse& event) const;
  // A sum as it is stored, and its value on the device: the same, or a copy of what is stored on the host.
  struct Sum {
    BufferId stored, on_device;
  };
  Sum add_to_sum(const Term& term, Home& home, BufferId added, Stream stream);
  Status accumulate_sharded(const OperandUse& event, const Term& term, Home& home, BufferId ready, EventCode& code);
  Status reduce_sums(const Term& term, Home& home, Sum last, Chain& chain, EventCode& code);
  InstructionId add(OpId op, BufferId a, BufferId b, BufferId sum, Stream stream);
  bool gets_other_terms(MeshId home) const;

  const Graph& graph_;
  const Sequence& sequence_;
  const CompileOptions& options_;
  Program& program_;
  const CurrentGroup& group_;
  Position& position_;
  Origins& origins_;
  const Differences& differences_;
  Passages& passages_;
  TurnSplits& splits_;
  Emitter& emitter_;
  TensorBuffers& buffers_;
  const ParameterTensors& tensors_;
  ParameterHomes& homes_;
  std::vector<MeshId> changed_terms_;  // homes that get other terms than before
};

}  // namespace weft
