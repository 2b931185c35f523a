// Constants of one entry of presets/cost/devices.yaml, fitted to measured operators that are not held out.
//
// Coordinate descent, one group of constants after another, each on the rows that it changes: least mean
// |log(predicted / measured)|, a row counting at most as if it were off by a factor of e. A constant that may be absent
// is dropped where that costs nothing. Same rows, same bytes.
#pragma once

#include "cost_check_rows.h"

namespace weft {

double predicted_seconds(const MeasuredOperator& op, const Tuning& tuning);

// The entry as it was fitted, and what changed as lines of YAML that go under its name.
struct FittedDevice {
  Tuning tuning;
  std::string yaml;
};
// `only`: part of the name of a group's first constant, empty for all.
Result<FittedDevice> fit_device(const std::vector<MeasuredOperator>& rows, const Tuning& start, std::string_view entry,
                                std::string_view only, std::string_view source);

// By how much longer the operator takes beside the other kernel, and the other beside it.
double predicted_slowdown(const MeasuredInterference& row, const Tuning& tuning);
double predicted_slowdown_of_other(const MeasuredInterference& row, const Tuning& tuning);
Result<FittedDevice> fit_interference(const std::vector<MeasuredInterference>& rows, const Tuning& start,
                                      std::string_view entry, std::string_view source);

}  // namespace weft
