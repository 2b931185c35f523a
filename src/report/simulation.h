// `weft simulate`: a forecast for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "forecast/forecast.h"

namespace weft {

// Step time, throughput and utilisation; where the time goes; memory by stage and its verdict; the busiest links; the
// critical path; what was assumed. A page of at most 120 columns.
std::string describe(const Plan& plan, const PlayedPlan& played, const Forecast& forecast);
// docs/schema/simulate.schema.json
nlohmann::json to_json(const Plan& plan, const PlayedPlan& played, const Forecast& forecast);

}  // namespace weft
