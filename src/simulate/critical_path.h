// The critical path of a recorded run: from the end back to 0, what each start waited for.
#pragma once

#include <vector>

#include "simulate/recorded.h"

namespace weft {

enum class Spent : std::uint8_t {
  Compute,        // a computation, as long as it takes alone
  Communication,  // a communication, as long as it takes alone
  Sharing,        // the excess over that: links shared or held by others, interference
  Host,           // the host issues the task
};

// What a stretch waited for last before it began.
enum class Waited : std::uint8_t {
  Nothing,  // nothing: it begins at 0
  Work,     // the same task: Sharing follows the time that it takes alone
  Stream,   // the previous task of its stream
  After,    // a task in its `after`
  Party,    // the last party of its meeting
  Host,     // its issue; a host stretch: the previous issue, a task, or the run-ahead limit
};

struct Stretch {
  Spent spent = Spent::Compute;
  Waited waited = Waited::Nothing;
  ExecutedTask task;
  Picoseconds from = 0, to = 0;

  bool operator==(const Stretch&) const = default;
};

// In order of time, without gaps, from 0 to the makespan. If several waits end at the same time, the first of stream,
// after, host is reported. Cost: the path and the tasks near it.
std::vector<Stretch> critical_path(const Recorded& recorded);

}  // namespace weft
