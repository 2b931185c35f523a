#include "base/memory.h"

#include <malloc.h>

namespace weft {

void keep_freed_memory() {
  constexpr int kBlock = 32 << 20;  // the largest threshold that glibc accepts
  constexpr int kFree = 256 << 20;
  mallopt(M_MMAP_THRESHOLD, kBlock);
  mallopt(M_TRIM_THRESHOLD, kFree);
}

}  // namespace weft
