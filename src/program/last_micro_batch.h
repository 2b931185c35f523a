// A smaller last micro-batch: the same program on fewer samples.
//
// Where a batch does not divide and the stack allows it, the last micro-batch of a step has fewer samples than the
// others. It plays the same instructions in the same order, on tensors that are smaller along their samples. Which
// dimensions those are follows from the graph of the smaller micro-batch: the same operators on other shapes.
#pragma once

#include "base/result.h"
#include "program/program.h"

namespace weft {

// The program with layouts and shardings for the smaller graph. Instructions, buffers and transfers keep their numbers,
// and parameters, gradients and states their layouts. Of a dimension the axis of samples shrinks: even cuts stay even,
// uneven parts shrink in proportion. An error names the tensor whose samples do not divide over the devices.
Result<Program> for_last_micro_batch(const Program& program, const Graph& graph, const Graph& smaller);

// The program of the smaller micro-batch with its graph, as simulation and tests take them.
struct LastMicroBatch {
  const Program& program;
  const Graph& graph;
};

}  // namespace weft
