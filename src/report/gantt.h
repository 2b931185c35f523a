// A run drawn in the terminal: one line per class of devices, time from left to right.
//
//   stage 0  F0──F1──F2──F3──        ·······B0══════B1══════
//   stage 1  ····F0──F1──B0══════F2──…
//
// A block is one body of one micro-batch. If the step has more blocks than fit, its beginning and its end are drawn.
#pragma once

#include <string>

#include "forecast/forecast.h"

namespace weft {

// At most `width` columns wide, at least 60. `played` must be recorded.
std::string draw_gantt(const Plan& plan, const PlayedPlan& played, std::size_t width = 100);

}  // namespace weft
