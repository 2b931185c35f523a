// How much of a device's memory a plan may fill: the one rule for searches, forecasts and what-if questions.
#pragma once

#include "base/units.h"
#include "cluster/cluster.h"

namespace weft {

// Share of a device's memory that stays free unless the user says otherwise.
inline constexpr double kHeadroom = 0.04;
// What a program can have of a device: as the driver reports it, or as sold where that is unknown. 0: neither is known.
Bytes capacity_of(const DeviceSpec& device);
// What a plan may fill of it.
Bytes memory_budget(Bytes capacity, double headroom);

}  // namespace weft
