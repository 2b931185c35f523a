// How Python calls the library: without the GIL, its errors as exceptions, and so that Ctrl-C is heard.
//
// Short calls run on the calling thread (without_gil). Long ones run on a thread of their own, which touches nothing of
// Python's, while the calling one listens for signals and tells `progress` (watched). A call that is interrupted is told
// to stop; if it has not within half a second it is left to end by itself, its result is dropped, and the interpreter
// waits for it at its end (another Ctrl-C ends the process at once).
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/result.h"
#include "problem/budget.h"

namespace weft::python {

namespace py = pybind11;

// weft.Error: the message of an Error.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) throw Failure(result.error().message);
  return std::move(result).value();
}
inline void must(const Status& status) {
  if (!status.ok()) throw Failure(status.error().message);
}

// Other Python threads run meanwhile.
template <class Work>
auto without_gil(Work&& work) {
  const py::gil_scoped_release released;
  return std::forward<Work>(work)();
}

// What a long call and the thread that waits for it share.
class Watch {
 public:
  const std::atomic<bool>* cancelled() const { return &cancelled_; }
  void cancel() { cancelled_ = true; }
  // From threads of the call.
  void report(const SearchProgress& progress);
  // The latest report, if it is new.
  bool take(SearchProgress& progress);

 private:
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  SearchProgress latest_;
  bool fresh_ = false;
};

// Called on the waiting thread, with the GIL, several times a second. False: cancel, and return what there is.
using PythonProgress = std::function<bool(const SearchProgress&)>;

namespace detail {
std::shared_ptr<void> watch_work(const std::shared_ptr<Watch>& watch, const PythonProgress& on_progress,
                                 std::function<std::shared_ptr<void>()> work);
}

// `work` returns a std::shared_ptr and owns, or shares, all that it uses: it may outlive the call. KeyboardInterrupt, and
// what `on_progress` throws, cancels the watch and is thrown on.
template <class Work>
auto watched(const std::shared_ptr<Watch>& watch, const PythonProgress& on_progress, Work work) {
  using T = typename decltype(work())::element_type;
  return std::static_pointer_cast<T>(
      detail::watch_work(watch, on_progress, [work]() mutable -> std::shared_ptr<void> { return work(); }));
}

// Waits until no interrupted call runs on: at the end of the interpreter, before what they use is destroyed.
void wait_for_interrupted();

}  // namespace weft::python
