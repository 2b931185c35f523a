#include "problem/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <functional>

// The thread sanitizer does not see how oneTBB, which is not instrumented, hands work over: it is told here, and to
// overlook the library's own.
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>

extern "C" const char* __tsan_default_suppressions() { return "race:oneapi/tbb\ncalled_from_lib:libtbb.so\n"; }
#define WEFT_HAND_OVER(token) __tsan_release(token)
#define WEFT_TAKE_OVER(token) __tsan_acquire(token)
#else
#define WEFT_HAND_OVER(token)
#define WEFT_TAKE_OVER(token)
#endif

namespace weft {

int all_threads() { return tbb::info::default_concurrency(); }

void for_each_index(std::size_t count, int threads, std::size_t grain, const std::function<void(std::size_t)>& body) {
  if (threads == 1 || count <= grain) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  tbb::task_arena arena(threads > 0 ? threads : tbb::task_arena::automatic);
  [[maybe_unused]] char there = 0, back = 0;
  WEFT_HAND_OVER(&there);
  arena.execute([&] {
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, count, grain), [&](const auto& range) {
      WEFT_TAKE_OVER(&there);
      for (std::size_t i = range.begin(); i != range.end(); ++i) body(i);
      WEFT_HAND_OVER(&back);
    });
  });
  WEFT_TAKE_OVER(&back);
}

}  // namespace weft
