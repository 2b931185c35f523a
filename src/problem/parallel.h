// Independent iterations of a loop on all cores. Iteration i writes result i and depends on index i only, so results
// do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <functional>

namespace weft {

// How many threads `for_each_index` uses for `threads` 0: the machine's cores.
int all_threads();

// Calls body(i) for i in 0 … count−1, in any order, about `grain` or more consecutive ones at a time on a thread;
// returns when all are done. threads: 0 for all cores, 1 for the calling thread only.
void for_each_index(std::size_t count, int threads, std::size_t grain, const std::function<void(std::size_t)>& body);

}  // namespace weft
