#include "run/busy_loops.h"

#include <sched.h>

namespace weft::runtime {

Result<std::vector<int>> loops_of_ranks(std::string_view words, const std::vector<Cores>& pinned) {
  WEFT_TRY(const std::vector<int> loops, numbers_of_ranks("--beside", words, static_cast<int>(pinned.size()), 0, 64));
  for (std::size_t rank = 0; rank < loops.size(); ++rank)
    if (loops[rank] > 0 && pinned[rank].empty())
      return error("--beside {}: rank {} has no cores of its own to share; name them (--pin 0,1)", words, rank);
  return loops;
}

BusyLoops::BusyLoops(const std::vector<int>& loops, const std::vector<Cores>& pinned) {
  for (std::size_t rank = 0; rank < loops.size(); ++rank)
    for (int loop = 0; loop < loops[rank]; ++loop)
      for (int core : pinned[rank])
        threads_.emplace_back([this, core] {
          const cpu_set_t only = as_set({core});
          ::sched_setaffinity(0, sizeof only, &only);  // of this thread
          while (!ended_.load(std::memory_order_relaxed)) {
          }
        });
}

BusyLoops::~BusyLoops() {
  ended_ = true;
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace weft::runtime
