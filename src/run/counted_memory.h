// How much memory the tensors of this process hold: counted by an allocator that stands before libtorch's own.
#pragma once

#include "base/units.h"

namespace weft::runtime {

// From now on what libtorch allocates for tensors on processors is counted. Once, before other threads allocate.
// Cost: two atomic additions for an allocation. What Gloo allocates for itself is not seen.
void count_memory();

struct CountedMemory {
  Bytes held,
      peak;  // now; the most since `restart_peak`. As malloc gives them: in multiples of 16 bytes, large ones of
             // pages. 0 where nothing is counted.
};
CountedMemory counted_memory();
void restart_peak();

}  // namespace weft::runtime
