// The share of the memory bandwidth that stands in for a pass which was not measured on a device by itself.
#pragma once

#include "cost/tuning.h"

namespace weft {

double plain_share(Pass pass, const DeviceTuning& tuning);

}  // namespace weft
