// A forecast's interval and its memory verdict, in words and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "forecast/forecast.h"

namespace weft {

std::string half_width_text(double half_width);   // "± 15 %", of a half-width in logarithms
std::string step_text(const Forecast& forecast);  // "58.3 s ± 15 % (80 % interval)"
std::string reasons_text(const TimeInterval& interval, const std::string& indent);  // lines, or nothing

nlohmann::json to_json(const TimeInterval& interval);

}  // namespace weft
