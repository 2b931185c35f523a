// Shares as tables print them.
#pragma once

#include <fmt/format.h>

#include <string>

namespace weft {

inline std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace weft
