// What crosses from forward to backward: which buffer of each tensor is saved, on the device or on the host.
#pragma once

#include "compile/tensor_buffers.h"

namespace weft {

class SavedTensors {
 public:
  // All are kept by reference.
  SavedTensors(const Graph& graph, const Sequence& sequence, const CompileOptions& options, const Program& program,
               const CurrentGroup& group, Position& position, Numbering& numbering, const Differences& differences,
               TurnSplits& splits, Emitter& emitter, TensorBuffers& buffers)
      : graph_(graph),
        sequence_(sequence),
        options_(options),
        program_(program),
        group_(group),
        position_(position),
        numbering_(numbering),
        differences_(differences),
        splits_(splits),
        emitter_(emitter),
        buffers_(buffers) {}

  // Forward ends before the group's event `from`: of its buffers those stay available that backward reads.
  void begin_backward(GroupId group, std::size_t from);
  // Backward ends: what micro-batches made is not available to the step.
  void begin_step(GroupId group);

 private:
  BufferId cheapest_to_read(const OperandUse& event, BufferId made);
  BufferId save_on_host(BufferId buffer, std::span<const OperandUse> forward);

  const Graph& graph_;
  const Sequence& sequence_;
  const CompileOptions& options_;
  const Program& program_;
  const CurrentGroup& group_;
  Position& position_;
  Numbering& numbering_;
  const Differences& differences_;
  TurnSplits& splits_;
  Emitter& emitter_;
  TensorBuffers& buffers_;
};

}  // namespace weft
