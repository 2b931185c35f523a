// A stage whose computation overlaps data-parallel communication of every micro-batch (ZeRO-2 and 3).
//
// A device has one stream for computation and one for collectives among replicas. Each executes in the order in which
// the compiler issues (compile/buckets.h):
//   - a section's parameters are gathered before it computes, one section ahead where the stack prefetches. At most
//     `in_flight` sections are gathered at once: a gather waits until an earlier section needs its parameters no more;
//   - a section's gradients are reduced when the last of them is ready. In the stream, the parameters of the next
//     section follow them, or with prefetching those of the section after the next.
// So a gather may wait for all reductions of a layer, and computation for both. The two streams are simulated with
// given durations. While both are busy each is slower, by factors that do not depend on the other's current item: they
// share the device and, with communication inside a section, links.
// Cost: some 10 ns per collective of a section, pass and micro-batch. A few micro-batches and, of many equal layers, a
// few layers are simulated; the others are extrapolated linearly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Parameters of a section that are gathered by one collective, and gradients that are reduced by one. Durations, in any
// unit; moments of first use or of readiness since the beginning of the section's pass.
struct StreamGather {
  double forward = 0, backward = 0;
  double forward_use = 0, backward_use = 0;
};
struct StreamReduce {
  double takes = 0, ready = 0;
};

// Speeds of the two streams while both are busy, as fractions of their speeds alone.
struct OverlapSpeed {
  double compute = 1, communicate = 1;
};

// A part of a section's pass with speeds of its own: communication inside the section.
struct StreamSpan {
  double start = 0, end = 0;
  OverlapSpeed speed;
};

struct StreamSection {
  double forward = 0, backward = 0;  // alone
  OverlapSpeed forward_overlap = {}, backward_overlap = {};
  std::span<const StreamSpan> forward_spans = {}, backward_spans = {};  // in order, disjoint
  double forward_done = 0, backward_done = 0;                           // when its parameters are no longer needed
  double adds = 0;  // accumulation of reduced gradients, where computation waits for reductions
  std::vector<StreamGather> gathers = {};
  std::vector<StreamReduce> reduces = {};
};

struct StreamRules {
  bool ahead_forward = true, ahead_backward = true;  // gathers are issued a section ahead
  int in_flight = 2;                                 // most sections that are gathered and not yet computed
  bool overlap = true;                               // computation does not wait for reductions
  // What the first section gathers in the forward pass is in use until the last section: no gather waits for its end.
  bool keep_first = false;
};

struct StreamTimes {
  double forward = 0, backward = 0;  // of a micro-batch in the steady state
  double all = 0;  // computation of all micro-batches, one forward and one backward pass after another
  double lag = 0;  // from the end of computation to the end of data-parallel communication
};

// `stage`: indices into `sections`, in the order of the network.
StreamTimes play_streams(std::span<const StreamSection> sections, std::span<const std::int32_t> stage,
                         const StreamRules& rules, int micro_batches);

}  // namespace weft
