// A run of a priced plan that was measured, in the simulator's terms: the same tasks at the times at which they were
// really played, so that whatever reads the one reads the other. (src/validate makes it from ranks' timelines.)
#pragma once

#include <vector>

#include "program/program.h"
#include "simulate/engine.h"

namespace weft {

struct MeasuredRun {
  // Of every agent `end` and `tasks`; times from the first rank's begin of the step, by one clock.
  Run run;

  struct Host {
    // The host packs and issues a communication, or waits for one and unpacks what it brings.
    struct Slice {
      Picoseconds from = 0, to = 0;
      InstructionId instruction;
      std::int32_t micro_batch = 0;
      bool waits = false;
    };
    std::vector<Slice> slices;                                // by time
    std::vector<std::pair<Picoseconds, std::int64_t>> bytes;  // in use, by time
  };
  IdVec<AgentId, Host> hosts;
};

}  // namespace weft
