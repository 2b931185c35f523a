// What `weft run` trains where its words leave things out, and what its ranks read: also what is measured for it (weft
// profile measure).
#pragma once

#include <string>
#include <vector>

#include "bundle/bundle.h"
#include "plan/plan.h"

namespace weft {

// The request with defaults for ranks on processors: Weft's own stack, small batches, fp32. Each is told.
Result<PlanRequest> as_run(PlanRequest request, std::int64_t ranks, std::vector<std::string>& assumptions);

// What ranks read: the plan's program, its devices numbered by rank.
Bundle bundle_of(const Plan& plan, const CompiledStrategy& compiled);

}  // namespace weft
