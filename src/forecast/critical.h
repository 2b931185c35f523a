// Stretches of a recorded run's critical path (simulate/critical_path.h), each with its instruction.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/engine.h"

namespace weft {

enum class PathPart : std::uint8_t { Compute, Communication, Sharing, Host };

struct PathStretch {
  PathPart part{};
  std::uint32_t instruction = 0;  // the task's label
  Picoseconds time = 0;
};

// In order of time; their times sum to the makespan.
std::vector<PathStretch> critical_stretches(const Workload& workload, const Run& run);

}  // namespace weft
