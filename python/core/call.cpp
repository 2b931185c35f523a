#include "core/call.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <thread>
#include <vector>

namespace weft::python {
namespace {

using namespace std::chrono_literals;
constexpr auto kListen = 50ms;  // how often the waiting thread looks for signals and progress
constexpr auto kGrace = 500ms;  // for an interrupted call to stop

// A call on a thread of its own.
struct Running {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::shared_ptr<void> result;
  std::exception_ptr failed;

  bool wait(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex);
    return ended.wait_for(lock, most, [&] { return done; });
  }
};

// Interrupted calls that have not ended, of this process: a forked one has none of its parent's threads.
struct Interrupted {
  std::mutex mutex;
  std::vector<std::shared_ptr<Running>> calls;
  pid_t process = ::getpid();
};
Interrupted& interrupted() {
  static auto* const kept = new Interrupted;  // never destroyed: threads may end after everything else
  return *kept;
}

void leave_to_end(const std::shared_ptr<Running>& running) {
  Interrupted& all = interrupted();
  const std::lock_guard lock(all.mutex);
  if (all.process != ::getpid()) all.calls.clear(), all.process = ::getpid();
  std::erase_if(all.calls, [](const auto& each) { return each->wait(0ms); });
  all.calls.push_back(running);
}

}  // namespace

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

std::shared_ptr<void> detail::watch_work(const std::shared_ptr<Watch>& watch, const PythonProgress& on_progress,
                                         std::function<std::shared_ptr<void>()> work) {
  const auto running = std::make_shared<Running>();
  std::thread([running, work = std::move(work)]() mutable {
    std::shared_ptr<void> result;
    std::exception_ptr failed;
    try {
      result = work();
    } catch (...) {
      failed = std::current_exception();
    }
    work = {};
    const std::lock_guard lock(running->mutex);
    running->result = std::move(result);
    running->failed = std::move(failed);
    running->done = true;
    running->ended.notify_all();
  }).detach();
  try {
    for (bool over = false; !over;) {
      over = without_gil([&] { return running->wait(kListen); });
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (SearchProgress now; on_progress && watch->take(now) && !on_progress(now)) watch->cancel();
    }
  } catch (...) {
    watch->cancel();
    if (!without_gil([&] { return running->wait(kGrace); })) leave_to_end(running);
    throw;
  }
  if (running->failed) std::rethrow_exception(running->failed);
  return std::move(running->result);
}

void wait_for_interrupted() {
  Interrupted& all = interrupted();
  if (all.process != ::getpid()) return;
  for (const std::shared_ptr<Running>& each : all.calls)
    while (!without_gil([&] { return each->wait(kListen); }))
      if (PyErr_CheckSignals() != 0) ::_exit(128 + SIGINT);
}

}  // namespace weft::python
