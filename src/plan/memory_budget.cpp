#include "plan/memory_budget.h"

namespace weft {

Bytes capacity_of(const DeviceSpec& device) {
  return device.memory_usable.value.value > 0 ? device.memory_usable.value : device.memory.value;
}

Bytes memory_budget(Bytes capacity, double headroom) {
  return {static_cast<std::int64_t>(static_cast<double>(capacity.value) * (1 - headroom))};
}

}  // namespace weft
