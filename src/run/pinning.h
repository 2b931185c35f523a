// Which cores each rank of a run may use, and with how many threads.
//
// Ranks that wander over cores, or share one, take another time with every step: what is to be compared with a prediction
// is pinned. `auto` divides the cores that this process may use among the ranks by their threads, in order, so that
// nobody shares one; what a rank has beyond its threads is for those that carry its messages. Two runs at once would take
// the same cores: give each its own (taskset), or say none.
#pragma once

#include <sched.h>

#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::runtime {

using Cores = std::vector<int>;  // ascending; empty: all that the process may use

// "2" for all ranks, or one number for each: "1,1,2,4". `option` is named in errors.
Result<std::vector<int>> numbers_of_ranks(std::string_view option, std::string_view words, int ranks, int least,
                                          int most);
// Of --threads.
Result<std::vector<int>> threads_of_ranks(std::string_view words, int ranks);

// "auto": as above; nobody is pinned where there are fewer cores than threads. "none". Or a list with an entry for each
// rank, a core or a range: "0,1,2-3". `allowed` are the cores of this process.
Result<std::vector<Cores>> pinned_cores(std::string_view words, const std::vector<int>& threads, const Cores& allowed);

Cores allowed_cores();
cpu_set_t as_set(const Cores& cores);

}  // namespace weft::runtime
