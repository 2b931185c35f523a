#include "base/parse_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace weft {

Result<nlohmann::json> parse_json(std::string_view text, std::string_view file) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& problem) {
    const std::size_t at = std::min<std::size_t>(problem.byte > 0 ? problem.byte - 1 : 0, text.size());
    const std::string_view before = text.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return error("{}:{}: not valid JSON at column {}{}", file, line, at - start + 1,
                 at >= text.size() ? ": the file ends too early" : "");
  } catch (const nlohmann::json::exception&) {
    return error("{}: not valid JSON", file);
  }
}

}  // namespace weft
