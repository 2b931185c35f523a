// How Python calls the library: without the GIL, its errors as exceptions, and so that Ctrl-C is heard.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <functional>
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

// For what takes milliseconds: on the calling thread, other Python threads run meanwhile.
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

// Runs `work` on a thread of its own and waits for it; `on_progress` is called on this one, with the GIL, several times
// a second. KeyboardInterrupt, and whatever `on_progress` throws, cancels the watch, waits for the work to end and is
// thrown on. If it returns false the work is cancelled and its result returned.
using PythonProgress = std::function<bool(const SearchProgress&)>;
void watched(Watch& watch, const PythonProgress& on_progress, const std::function<void()>& work);

}  // namespace weft::python
