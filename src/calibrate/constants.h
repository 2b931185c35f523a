// Which constants are fitted: names, where each lives, its bounds and its prior (presets/calibration.yaml).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost/calibration.h"

namespace weft {

// One number in one or several places (cost/calibration.h): 80 GB and 40 GB A100 share their rates.
struct FittedConstant {
  std::string name;
  std::vector<std::string> places;  // of all, the first one's value counts as the present one
  double least = 0, most = 1;
  Figure<double> prior;  // where it would be without any run: from single operators, data sheets or papers
  double spread = 0.1;   // of the prior, as a share: how far off it may well be

  bool operator==(const FittedConstant&) const = default;
};

Result<std::vector<FittedConstant>> parse_fitted_constants(std::string_view text, std::string_view file);
const std::vector<FittedConstant>& built_in_fitted_constants();

// Those that words choose: a name, or its beginning and a star. An error: a word that chooses none.
Result<std::vector<FittedConstant>> chosen_constants(const std::vector<FittedConstant>& all,
                                                     const std::vector<std::string>& words);

}  // namespace weft
