// Data parallelism where the batch does not divide over the devices: replicas with nearly the same number of samples.
//
// The next larger batch that divides is searched; its best plans of one stage get the samples that there are, some
// replicas one less than others. Cost: a search, and a simulation of each of a few plans.
#pragma once

#include "hybrid/enumerate.h"

namespace weft {

// Nothing found is an error: the batch divides, or no plan has replicas that can differ.
Result<PlanOutcome> search_uneven_replicas(const PlanProblem& problem, const CostModel& cost,
                                           const EnumerateOptions& options);

}  // namespace weft
