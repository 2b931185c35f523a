// A resolved strategy as the compiler takes it.
#pragma once

#include "compile/compile.h"
#include "strategy/resolve.h"

namespace weft {

struct CompiledStrategy {
  Program program;
  Schedule schedule;
};

// Places stages and operators on their meshes, settles every operator's split, makes the schedule and compiles. Stages
// may have meshes of different shapes, operators devices of their own. An error names what the strategy asks and the
// compiler does not do: parameters stored each in its way.
//
// Of `parameters` the units are filled in here where weights are spread: every layer is one, the rest another.
Result<CompiledStrategy> compile_strategy(const TrainingGraph& training, const ResolvedStrategy& strategy,
                                          const GradientSync& gradients = {}, ParameterSync parameters = {},
                                          bool keep_gathered_input = false);

}  // namespace weft
