// A default share of the memory bandwidth for a pass that was not measured on a device.
#pragma once

#include "cost/tuning.h"

namespace weft {

double plain_share(Pass pass, const DeviceTuning& tuning);

}  // namespace weft
