// Why a recorded run takes as long as it does: from the end back to 0, what each start waited for.
#pragma once

#include <vector>

#include "simulate/recorded.h"

namespace weft {

enum class Spent : std::uint8_t {
  Compute,        // a computation, as long as it takes alone
  Communication,  // a communication, as long as it takes alone
  Sharing,        // what either takes longer: links shared or held by others, interference
  Host,           // the host issues the task
};

// Why a stretch begins where it does: which of its needs was met last.
enum class Waited : std::uint8_t {
  Nothing,  // it begins at 0
  Work,     // goes on with the same task: its sharing after what it takes alone
  Stream,   // for the task before on its stream
  After,    // for a task it comes after
  Party,    // in a meeting, for the last to come
  Host,     // to be issued; of the host: for its last issue, for a task it waits for, or for room to run ahead
};

struct Stretch {
  Spent spent = Spent::Compute;
  Waited waited = Waited::Nothing;
  ExecutedTask task;
  Picoseconds from = 0, to = 0;

  bool operator==(const Stretch&) const = default;
};

// In order of time, without gaps, from 0 to the makespan. Of several reasons at one time the first is taken of: stream,
// after, host. Cost: the path and the tasks near it.
std::vector<Stretch> critical_path(const Recorded& recorded);

}  // namespace weft
