// One kind of a mixed cluster's devices alone: the search of the hybrid space on them, with its plans as trees that name
// their devices, so that they are plans of the whole cluster too.
#pragma once

#include "hybrid/enumerate.h"
#include "mixed/device_kinds.h"

namespace weft {

// "16 h100-sxm alone".
std::string name_alone(const DeviceKind& kind, std::int64_t nodes);

// On the first nodes of the kind.
Result<PlanOutcome> search_alone(const PlanProblem& problem, const CostModel& cost, const DeviceKind& kind,
                                 std::int64_t nodes, const EnumerateOptions& options);

}  // namespace weft
