// A resolved strategy as the compiler takes it.
#pragma once

#include "compile/compile.h"
#include "strategy/resolve.h"

namespace weft {

struct CompiledStrategy {
  Program program;
  Schedule schedule;
};

// Places stages on their meshes, settles every operator's split, makes the schedule and compiles. An error names what
// the strategy asks and the compiler does not do: stages held twice (dualpipe), meshes of different shapes with choices
// of their own, host offload, ring attention, operators placed one by one.
Result<CompiledStrategy> compile_strategy(const TrainingGraph& training, const ResolvedStrategy& strategy,
                                          const GradientSync& gradients = {});

}  // namespace weft
