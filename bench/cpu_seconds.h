// CPU seconds of this process, which other users of the machine do not affect.
#pragma once

#include <time.h>

namespace weft {

inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace weft
