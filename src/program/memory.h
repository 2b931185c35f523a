// What a rank holds in memory, by kind, when a program is played: the peak and what it is made of.
#pragma once

#include <algorithm>

#include "program/program.h"

namespace weft {

struct HeldBytes {
  Bytes parameters, gradients, optimizer;  // held from step to step
  Bytes activations;                       // saved from forward for backward
  Bytes buffers;                           // inputs and temporaries

  Bytes total() const { return parameters + gradients + optimizer + activations + buffers; }
  bool operator==(const HeldBytes&) const = default;
};

// Bytes of the contiguous buffer of a collective that is staged, otherwise 0: for every buffer of the bucket the larger
// of what goes in and what comes out, in the type that is sent. `bytes_of_buffer`: bytes of a buffer on the device, in
// the type in which it is stored.
template <class BytesOf>
std::int64_t staging_bytes(const Program& program, const Graph& graph, const Communicate& communicate,
                           const BytesOf& bytes_of_buffer) {
  std::int64_t bytes = 0;
  if (!communicate.staged) return bytes;
  for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
    const BufferId from = communicate.inputs[i], to = communicate.outputs[i];
    const std::int64_t stored = std::max<std::int64_t>(bytes_of_buffer(from), bytes_of_buffer(to));
    bytes += stored * bits_of(sent_type(program, graph, communicate, from)) /
             bits_of(stored_type(program, graph, stored == bytes_of_buffer(from) ? from : to));
  }
  return bytes;
}

// Buffers that need no memory of their own in the first micro-batch: a term that begins a sum, and that nothing else
// reads, is made in the sum's memory.
IdVec<BufferId, char> made_in_sums(const Program& program, const Graph& graph);

// By pipeline rank: the most that one of its devices holds at a time, in the schedule's order. Every allocation and free
// counts, views only once, uneven parts as the largest. `last`: the program of a smaller last micro-batch, where there is
// one. Cost: linear in instructions times micro-batches.
std::vector<HeldBytes> peak_memory(const Program& program, const TrainingGraph& training, const Schedule& schedule,
                                   const std::optional<Program>& last = {});

}  // namespace weft
