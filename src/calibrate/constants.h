// The fitted constants: names, paths, bounds and priors (presets/calibration.yaml).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost/calibration.h"

namespace weft {

// One number at one or several paths (cost/calibration.h): 80 GB and 40 GB A100 share their rates.
struct FittedConstant {
  std::string name;
  std::vector<std::string> places;  // the first one's value is the present value
  double least = 0, most = 1;
  Figure<double> prior;  // its value without any run: from single operators, data sheets or papers
  double spread = 0.1;   // relative standard deviation of the prior

  bool operator==(const FittedConstant&) const = default;
};

Result<std::vector<FittedConstant>> parse_fitted_constants(std::string_view text, std::string_view file);
const std::vector<FittedConstant>& built_in_fitted_constants();

// The constants selected by names, or by prefixes with a star. An error if one selects none.
Result<std::vector<FittedConstant>> chosen_constants(const std::vector<FittedConstant>& all,
                                                     const std::vector<std::string>& words);

}  // namespace weft
