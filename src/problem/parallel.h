// The same work for every index, on all cores. Who calls writes result i from index i alone, so that results do not
// depend on how many threads there are.
#pragma once

#include <cstddef>
#include <functional>

namespace weft {

// How many threads `for_each_index` uses by itself: the machine's cores.
int all_threads();

// Calls body(i) for i in 0 … count−1, in any order, `grain` neighbours on one thread; returns when all are done.
// threads: 0 for all, 1 for the caller's alone.
void for_each_index(std::size_t count, int threads, std::size_t grain, const std::function<void(std::size_t)>& body);

}  // namespace weft
