// Plans for devices of several kinds: every kind alone, pipelines whose stages have unequal layers on unequal groups of
// devices, and data parallelism with samples in proportion to speed. Start here.
//
//   search_mixed(problem, cost, options)    beside enumerate(), which cuts everything evenly
//
// Candidates are ordered by composed costs; the best are simulated in full by the one judge. A plan may leave devices
// out where they hurt. The bound is that of all devices computing at their own speed all the time.
// Cost: that of enumerate() for each kind, of MixedPipelines (pipelines.h) and of find_replicas (replicas.h).
#pragma once

#include "hybrid/enumerate.h"
#include "mixed/device_kinds.h"

namespace weft {

// For devices of several kinds. A model without alike layers has no pipelines here.
Result<PlanOutcome> search_mixed(const PlanProblem& problem, const CostModel& cost, const EnumerateOptions& options);

}  // namespace weft
