// How much of a device's memory a plan may use: one rule for searches, forecasts and what-if questions.
#pragma once

#include "base/units.h"
#include "cluster/cluster.h"

namespace weft {

// Share of a device's memory that stays free unless the user says otherwise.
inline constexpr double kHeadroom = 0.04;
// The memory available to a program: as the driver reports it, else the nominal size. 0: neither is known.
Bytes capacity_of(const DeviceSpec& device);
// The part of it that a plan may use.
Bytes memory_budget(Bytes capacity, double headroom);

}  // namespace weft
