// A smaller last micro-batch: the same program on fewer samples.
//
// Where a batch does not divide and the stack allows it, the last micro-batch of a step has fewer samples than the
// others. It plays the same instructions in the same order, on tensors that are smaller along their samples. Which
// dimensions those are is told by the graph of the smaller micro-batch: the same operators on other shapes.
#pragma once

#include "base/result.h"
#include "program/program.h"

namespace weft {

// The program with layouts and splits for the smaller graph: same numbers of everything, what belongs to parameters as
// it was. A dimension shrinks where its samples are counted: cut evenly it stays so, uneven parts shrink in proportion.
// An error names the tensor whose samples do not divide over the devices that share them.
Result<Program> for_last_micro_batch(const Program& program, const Graph& graph, const Graph& smaller);

// The two together, for players.
struct LastMicroBatch {
  const Program& program;
  const Graph& graph;
};

}  // namespace weft
