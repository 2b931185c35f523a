#include "compile/compile.h"

#include "compile/compilation.h"

namespace weft {

Result<Program> compile(const TrainingGraph& training, const Placing& placing, std::vector<RouteSplit> routes,
                        const CompileOptions& options) {
  WEFT_TRY(const Placing placed, with_world(placing));
  Compilation compilation(training, placed, std::move(routes), options);
  return compilation.compile_once();
}

Result<Program> compile(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
                        const CompileOptions& options, const RecomputeRegions& recompute) {
  return compile(training, placing, {{plan, recompute}}, options);
}

}  // namespace weft
