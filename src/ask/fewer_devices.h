// Fewer devices than there are, where the rest does not divide the work or does not help.
//
// A plan on all devices may be slower than one on some: 64 of 72 divide heads, layers and samples; small models spend
// their time communicating. Whole nodes are left out, and of a single node devices.
#pragma once

#include <vector>

#include "problem/outcome.h"
#include "problem/problem.h"

namespace weft {

// The same request on fewer devices, most devices first: powers of two of them, and the most that divide the batch.
// Empty where devices or nodes are of several kinds, or the request says how many devices.
std::vector<PlanRequest> on_fewer_devices(const PlanRequest& request, const PlanProblem& problem);

// Whether a plan on so many devices could be faster: not if the winner's computation, on fewer devices, takes as long.
bool may_be_faster(const PlanOutcome& outcome, std::int64_t devices, std::int64_t fewer);

}  // namespace weft
