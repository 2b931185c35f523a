// Constants of one entry of presets/cost/devices.yaml, fitted to measured operators that are not held out.
//
// Coordinate descent, one group of constants after another, each on the rows that it changes: least mean
// |log(predicted / measured)|, where a row counts at most 1 (a factor of e). A constant that may be absent is dropped
// if that does not increase the loss. The same rows give the same bytes.
#pragma once

#include "cost_check_rows.h"

namespace weft {

double predicted_seconds(const MeasuredOperator& op, const Tuning& tuning);

// The fitted entry, and the changed constants as lines of YAML for it.
struct FittedDevice {
  Tuning tuning;
  std::string yaml;
};
// `only`: a part of the name of a group's first constant; empty: all groups.
Result<FittedDevice> fit_device(const std::vector<MeasuredOperator>& rows, const Tuning& start, std::string_view entry,
                                std::string_view only, std::string_view source);

// Slowdowns of the operator and of the other kernel while both run.
double predicted_slowdown(const MeasuredInterference& row, const Tuning& tuning);
double predicted_slowdown_of_other(const MeasuredInterference& row, const Tuning& tuning);
Result<FittedDevice> fit_interference(const std::vector<MeasuredInterference>& rows, const Tuning& start,
                                      std::string_view entry, std::string_view source);

}  // namespace weft
