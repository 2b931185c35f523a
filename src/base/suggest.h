// "Did you mean": the known names nearest to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The names nearest to `name` (edit distance, case ignored, a common prefix counts in favour), best first, at most
// `most`; empty when nothing is reasonably near. Cost: one edit distance per known name.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> known, int most = 3);

// "; did you mean a, b or c?", or "" when nothing is near: to be appended to an error message.
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

// The same, or all of a short list when nothing is near: "; known: a, b, c".
std::string did_you_mean_or_list(std::string_view name, std::span<const std::string> known);

}  // namespace weft
