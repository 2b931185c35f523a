// What a forecast's times rest on: how much of them was measured, interpolated, scaled or computed, and how uncertain
// that leaves the step.
#pragma once

#include <array>

#include "forecast/forecast.h"

namespace weft {

// Of the work of the rank that ends last — every task's time alone, whether something runs beside it or not. Errors of
// operators and collectives of one sort are taken to be the same, those of different sorts to be independent.
StepEvidence evidence_of(const Plan& plan, const PlayedPlan& played, const CostModel& cost);

}  // namespace weft
