// A device, by its number in the cluster. Layouts and programs name devices and know nothing else of them.
#pragma once

#include "base/id.h"

namespace weft {

using DeviceId = Id<struct DeviceTag>;

}  // namespace weft
