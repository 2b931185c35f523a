// `weft compare`: two plans side by side: what differs in problem and strategy, where time and memory go.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "forecast/forecast.h"

namespace weft {

// A plan as `weft compare` takes it, simulated with its timeline.
struct ComparedPlan {
  std::string name;  // file or shorthand, as the user wrote it
  const Plan& plan;
  const PlayedPlan& played;
  const Forecast& forecast;
};

std::string describe(const ComparedPlan& a, const ComparedPlan& b);
// docs/schema/compare.schema.json
nlohmann::json to_json(const ComparedPlan& a, const ComparedPlan& b);

}  // namespace weft
