// From a resolved strategy and a software stack to a compiled program and its schedule.
#pragma once

#include "cluster/cluster.h"
#include "compile/compile.h"
#include "strategy/resolve.h"
#include "strategy/stack.h"

namespace weft {

struct CompiledStrategy {
  Program program;
  Schedule schedule;
  std::optional<Program> last = {};  // as a smaller last micro-batch plays it (program/last_micro_batch.h)
};

// Places stages and operators on their meshes, settles every operator's split, makes the schedule and compiles. Stages
// may have meshes of different shapes, operators devices of their own. An error names what the strategy asks for and
// the compiler does not do.
//
// `options.memory` is filled in here, and so are the units of parameters (ParameterSync) where weights are sharded:
// every layer is one, the rest of the model another. `last`: the graph of a smaller last micro-batch, where there is
// one.
Result<CompiledStrategy> compile_strategy(const TrainingGraph& training, const ResolvedStrategy& strategy,
                                          CompileOptions options = {}, const Graph* last = nullptr);

// The options that follow from a software stack on a cluster, and from the types to compute and send in.
CompileOptions compile_options(const SoftwareStack& stack, const Cluster& cluster, const NumberTypes& types = {});

}  // namespace weft
