// A resolved strategy as the compiler takes it.
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
// may have meshes of different shapes, operators devices of their own. An error names what the strategy asks and the
// compiler does not do.
//
// Of `options` memory is filled in here, and the units of parameters where weights are spread: every layer is one, the
// rest another. `last`: the graph of a smaller last micro-batch, where there is one.
Result<CompiledStrategy> compile_strategy(const TrainingGraph& training, const ResolvedStrategy& strategy,
                                          CompileOptions options = {}, const Graph* last = nullptr);

// What the software stack settles of a program on this cluster, and the types it computes and sends in.
CompileOptions compile_options(const SoftwareStack& stack, const Cluster& cluster, const NumberTypes& types = {});

}  // namespace weft
