// What every search is given and what it gives back, whatever its space. Start here.
//
// A search proposes candidates and asks one judge what each takes; memory is a hard limit, so a candidate that does not
// fit has no time. It stops by itself, by its budget, or when it is cancelled, and then returns the best so far with a
// lower bound that no plan of its space can beat. The same problem and seed give the same outcome on any number of
// threads, unless time or a person stopped it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace weft {

// How long a search may go on. Evaluations make it reproducible; seconds are a safety stop.
struct SearchBudget {
  std::int64_t evaluations = 0;                  // of the judge; 0: as the problem's size suggests
  double seconds = 0;                            // of wall-clock time; 0: no limit
  const std::atomic<bool>* cancelled = nullptr;  // a person's wish to stop
};

enum class StoppedBy { Itself, Evaluations, Time, Cancelled };
std::string_view name_of(StoppedBy reason);  // "done", "evaluations", "time", "cancelled"

// What became of the candidates.
struct SearchCounts {
  std::int64_t considered = 0;
  std::map<std::string, std::int64_t> pruned;  // without a judgement, by reason: "memory", "bound", "does not divide" …
  std::int64_t composed = 0;                   // judged by closed-form composition
  std::int64_t simulated = 0;                  // judged in full
};

struct SearchProgress {
  std::int64_t done = 0, of = 0;  // candidates or evaluations; of: 0 if unknown
  double best_s = 0;              // 0: none yet
};
using OnProgress = std::function<void(const SearchProgress&)>;

// Tells a search when its budget is spent.
class SearchClock {
 public:
  explicit SearchClock(const SearchBudget& budget) : budget_(budget), start_(Clock::now()) {}

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  // Itself: go on.
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
