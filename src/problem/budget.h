// What all searches share, whatever their space: budget, progress, counts, and the reason for stopping.
//
// A search proposes candidates and asks one judge for the time and memory of each; memory is a hard limit. It stops by
// itself, by its budget, or when it is cancelled, and returns the best candidate so far with a lower bound on the step
// time of every plan of its space. The same problem and seed give the same outcome on any number of threads, unless
// time or a user stopped it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace weft {

// The limits of a search. A limit on evaluations is reproducible; one on seconds is not.
struct SearchBudget {
  std::int64_t evaluations = 0;                  // calls of the judge; 0: chosen by the size of the problem
  double seconds = 0;                            // of wall-clock time; 0: no limit
  const std::atomic<bool>* cancelled = nullptr;  // set by a user to stop the search
};

// `parts` of `of` equal parts; no limit stays none.
inline SearchBudget share_of(SearchBudget budget, std::size_t parts, std::size_t of) {
  if (budget.evaluations > 0)
    budget.evaluations = std::max<std::int64_t>(
        1, budget.evaluations * static_cast<std::int64_t>(parts) / static_cast<std::int64_t>(of));
  budget.seconds *= static_cast<double>(parts) / static_cast<double>(of);
  return budget;
}

enum class StoppedBy { Itself, Evaluations, Time, Cancelled };
std::string_view name_of(StoppedBy reason);  // "done", "evaluations", "time", "cancelled"

// Numbers of candidates, by what was done with them.
struct SearchCounts {
  std::int64_t considered = 0;
  std::map<std::string, std::int64_t> pruned;  // not judged, by reason: "memory", "bound", "does not divide" …
  std::int64_t composed = 0;                   // judged by closed-form composition
  std::int64_t simulated = 0;                  // judged by simulation
};

struct SearchProgress {
  std::int64_t done = 0, of = 0;  // candidates or evaluations; of: the total, 0 if unknown
  double best_s = 0;              // 0: none yet
};
using OnProgress = std::function<void(const SearchProgress&)>;

// Measures how much of the budget is spent.
class SearchClock {
 public:
  explicit SearchClock(const SearchBudget& budget) : budget_(budget), start_(Clock::now()) {}

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  // Why to stop after this many evaluations; Itself: continue.
  StoppedBy after(std::int64_t evaluations) const {
    if (budget_.cancelled && budget_.cancelled->load(std::memory_order_relaxed)) return StoppedBy::Cancelled;
    if (budget_.evaluations > 0 && evaluations >= budget_.evaluations) return StoppedBy::Evaluations;
    if (budget_.seconds > 0 && seconds() >= budget_.seconds) return StoppedBy::Time;
    return StoppedBy::Itself;
  }

 private:
  using Clock = std::chrono::steady_clock;
  SearchBudget budget_;
  Clock::time_point start_;
};

}  // namespace weft
