// A measured run, planned and compiled once, to be priced and simulated repeatedly.
#pragma once

#include "cost/calibration.h"
#include "forecast/forecast.h"
#include "validate/mapping.h"

namespace weft {

struct PlannedRow {
  MappedRow mapped;
  Plan plan;
  CompiledStrategy compiled;
  double measured_s = 0;  // per step
};

// `stack`: instead of what rows and rules say, unless empty.
Result<PlannedRow> plan_row(const MeasuredRow& row, const MappingRules& rules, const std::string& stack = {},
                            const Calibration& calibration = {});

// The step's time with other constants. Cost: pricing and simulating.
Result<double> predicted_seconds(const PlannedRow& row, const Calibration& calibration);

}  // namespace weft
