// How the process gets memory from the system.
#pragma once

namespace weft {

// What one plan gives back is the next one's: freed memory stays with the process, large blocks too, instead of going
// back to the system and coming again in pages of zeros. For programs that judge one plan after the other, at the start
// of main; it changes when memory is returned, never how much is used.
void keep_freed_memory();

}  // namespace weft
