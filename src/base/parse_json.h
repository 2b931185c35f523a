// JSON that users name: errors name the file, the line and the column of what is wrong.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"

namespace weft {

Result<nlohmann::json> parse_json(std::string_view text, std::string_view file);

}  // namespace weft
