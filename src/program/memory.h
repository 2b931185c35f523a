// What a rank holds in memory, by kind, when a program is played: the peak and what it is made of.
#pragma once

#include "program/program.h"

namespace weft {

struct HeldBytes {
  Bytes parameters, gradients, optimizer;  // from step to step
  Bytes activations;                       // saved from forward for backward
  Bytes buffers;                           // inputs and temporaries

  Bytes total() const { return parameters + gradients + optimizer + activations + buffers; }
  bool operator==(const HeldBytes&) const = default;
};

// Buffers that need no memory of their own in the first micro-batch: terms that begin a sum are made in its memory,
// where nothing else reads them.
IdVec<BufferId, char> made_in_sums(const Program& program, const Graph& graph);

// The most that one device of each pipeline rank holds at a time, in the schedule's order: every allocation and free
// counted, views not twice; uneven parts by the largest. `last`: the program of a smaller last micro-batch, where there
// is one. Cost: linear in instructions times micro-batches.
std::vector<HeldBytes> peak_memory(const Program& program, const TrainingGraph& training, const Schedule& schedule,
                                   const std::optional<Program>& last = {});

}  // namespace weft
