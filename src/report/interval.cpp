#include "report/interval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/table.h"

namespace weft {

std::string half_width_text(double half_width) { return fmt::format("± {:.0f} %", 100 * half_width); }

std::string step_text(const Forecast& forecast) {
  return fmt::format("{} {} ({:.0f} % interval)", human(Seconds{forecast.step_s}),
                     half_width_text(forecast.interval.half_width), 100 * forecast.interval.level);
}

std::string reasons_text(const TimeInterval& interval, const std::string& indent) {
  return interval.reasons.empty() ? "" : wrapped(interval.reasons, "; ", indent);
}

nlohmann::json to_json(const TimeInterval& interval) {
  return {{"low_s", interval.low_s},
          {"high_s", interval.high_s},
          {"half_width", interval.half_width},
          {"level", interval.level},
          {"reasons", interval.reasons}};
}

}  // namespace weft
