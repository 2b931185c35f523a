#include "core/call.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <thread>

namespace weft::python {

void Watch::report(const SearchProgress& progress) {
  const std::lock_guard lock(mutex_);
  latest_ = progress;
  fresh_ = true;
}

bool Watch::take(SearchProgress& progress) {
  const std::lock_guard lock(mutex_);
  progress = latest_;
  return std::exchange(fresh_, false);
}

void watched(Watch& watch, const PythonProgress& on_progress, const std::function<void()>& work) {
  using namespace std::chrono_literals;
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::exception_ptr failed;
  std::thread thread([&] {
    try {
      work();
    } catch (...) {
      failed = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    ended.notify_all();
  });
  const auto join = [&] {
    const py::gil_scoped_release released;
    thread.join();
  };
  const auto tell = [&] {
    if (SearchProgress now; on_progress && watch.take(now) && !on_progress(now)) watch.cancel();
  };
  try {
    for (bool over = false; !over;) {
      {
        const py::gil_scoped_release released;
        std::unique_lock lock(mutex);
        over = ended.wait_for(lock, 50ms, [&] { return done; });
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      tell();
    }
  } catch (...) {
    watch.cancel();
    join();
    throw;
  }
  join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace weft::python
