// How the process returns memory to the system.
#pragma once

namespace weft {

// Keeps freed memory, large blocks too, in the process instead of returning it to the system, so that the next plan
// does not fault in zeroed pages again. For programs that evaluate one plan after another; call it at the start of
// main. It changes when memory is returned, never how much is used.
void keep_freed_memory();

}  // namespace weft
