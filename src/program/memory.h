// What a rank holds in memory, by kind, when a program is played: the peak and what it is made of.
#pragma once

#include <algorithm>

#include "program/program.h"

namespace weft {

struct HeldBytes {
  Bytes parameters, gradients, optimizer;  // from step to step
  Bytes activations;                       // saved from forward for backward
  Bytes buffers;                           // inputs and temporaries

  Bytes total() const { return parameters + gradients + optimizer + activations + buffers; }
  bool operator==(const HeldBytes&) const = default;
};

// Bytes of the contiguous buffer of a collective that is staged, otherwise 0: the whole side of every member, end to
// end, in the type that is sent. `bytes_of_buffer`: of a buffer on the device, as it is stored.
template <class BytesOf>
std::int64_t staging_bytes(const Program& program, const Graph& graph, const Communicate& communicate,
                           const BytesOf& bytes_of_buffer) {
  std::int64_t bytes = 0;
  if (!communicate.staged) return bytes;
  for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
    const BufferId from = communicate.inputs[i], to = communicate.outputs[i];
    const std::int64_t stored = std::max<std::int64_t>(bytes_of_buffer(from), bytes_of_buffer(to));
    bytes += stored * bits_of(sent_type(program, graph, communicate, from)) /
             bits_of(graph.tensors()[program.buffers[from].tensor].type.dtype);
  }
  return bytes;
}

// Buffers that need no memory of their own in the first micro-batch: terms that begin a sum are made in its memory,
// where nothing else reads them.
IdVec<BufferId, char> made_in_sums(const Program& program, const Graph& graph);

// The most that one device of each pipeline rank holds at a time, in the schedule's order: every allocation and free
// counted, views not twice; uneven parts by the largest. `last`: the program of a smaller last micro-batch, where there
// is one. Cost: linear in instructions times micro-batches.
std::vector<HeldBytes> peak_memory(const Program& program, const TrainingGraph& training, const Schedule& schedule,
                                   const std::optional<Program>& last = {});

}  // namespace weft
