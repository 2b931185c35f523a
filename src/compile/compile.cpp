#include "compile/compile.h"

#include "compile/check_compiled.h"
#include "compile/compilation.h"

namespace weft {

Result<Program> compile(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
                        const CompileOptions& options, const RecomputeRegions& recompute) {
  WEFT_TRY(const Placing placed, with_world(placing));
  Compilation compilation(training, placed, plan, options, recompute);
  WEFT_TRY(Program program, compilation.compile_once());
  // Programs of one stage need no particular schedule; those of several are checked where theirs is known
  // (from_strategy.cpp).
  if (program.stages.size() == 1)
    check_compiled(program, training.graph, make_schedule({.name = "gpipe", .ranks = 1, .micro_batches = 2}).value());
  return program;
}

}  // namespace weft
