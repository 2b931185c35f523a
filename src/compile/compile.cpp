#include "compile/compile.h"

#include "compile/compilation.h"

namespace weft {

Result<Program> compile(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
                        const CompileOptions& options, const RecomputeRegions& recompute) {
  WEFT_TRY(const Placing placed, with_world(placing));
  Compilation compilation(training, placed, plan, options, recompute);
  return compilation.compile_once();
}

}  // namespace weft
