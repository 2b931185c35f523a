// The evidence for a forecast's times: how much of them was measured, interpolated, scaled or computed, and the
// resulting uncertainty of the step.
#pragma once

#include <array>

#include "forecast/forecast.h"

namespace weft {

// Over the tasks of the rank that ends last, by their isolated times, overlapped or not. Errors of operators and
// collectives of one sort are assumed equal, those of different sorts independent.
StepEvidence evidence_of(const Plan& plan, const PlayedPlan& played, const CostModel& cost);

}  // namespace weft
