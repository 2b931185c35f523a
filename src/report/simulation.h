// `weft simulate`: a forecast as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "forecast/forecast.h"

namespace weft {

// The rows of a breakdown of time, in the order of printing; they sum to the step.
struct TimePart {
  std::string key, words;  // "exposed_data", "exposed data communication"
  Picoseconds time = 0;
};
std::vector<TimePart> time_parts(const StepBreakdown& breakdown);

// Step time, throughput and utilisation; the breakdown of time; memory by stage and whether it fits; the busiest links;
// the critical path; the assumptions. A page of at most 120 columns.
std::string describe(const Plan& plan, const PlayedPlan& played, const Forecast& forecast);
// docs/schema/simulate.schema.json
nlohmann::json to_json(const Plan& plan, const PlayedPlan& played, const Forecast& forecast);

}  // namespace weft
