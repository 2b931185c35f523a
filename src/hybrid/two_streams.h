// A stage's computation beside what its replicas say to one another in every micro-batch (ZeRO-2 and 3).
//
// A device computes on one stream and talks to its replicas on another, each in the order in which the compiler issues
// it (compile/buckets.h):
//   - parameters of a section are gathered before it computes, a section ahead where the stack prefetches; no more of
//     them than may be in flight, so a gather waits until an earlier section needs its own no more;
//   - gradients of a section leave when the last of them is there; the next section's parameters are behind them in the
//     stream, or those of the one after it where the stack prefetches.
// So parameters may wait for all of a layer's gradients, and computation for both. With durations given, the two
// streams are played as they are. What runs beside the other stream is slower, by factors that do not depend on what
// the other does: they share the device and, with communication inside a section, links.
// Cost: some 10 ns per piece of a section, pass and micro-batch. A few micro-batches and a few of many layers are
// played; the others add as much as the last of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Parameters of a section that are gathered together, and gradients that are reduced together. Durations in any unit,
// and when they are first used or ready, from the beginning of the section's pass.
struct StreamGather {
  double forward = 0, backward = 0;
  double forward_use = 0, backward_use = 0;
};
struct StreamReduce {
  double takes = 0, ready = 0;
};

// How fast two streams are beside one another, of what each is alone.
struct Beside {
  double compute = 1, say = 1;
};

// A part of a section's pass with factors of its own: communication inside it.
struct StreamSpan {
  double start = 0, end = 0;
  Beside beside;
};

struct StreamSection {
  double forward = 0, backward = 0;  // alone
  Beside forward_beside = {}, backward_beside = {};
  std::span<const StreamSpan> forward_spans = {}, backward_spans = {};  // in order, apart from one another
  double forward_done = 0, backward_done = 0;                           // from then on it needs no parameters
  double adds = 0;                                                      // computation that waits for the reductions
  std::vector<StreamGather> gathers = {};
  std::vector<StreamReduce> reduces = {};
};

struct StreamRules {
  bool ahead_forward = true, ahead_backward = true;  // gathers are issued a section ahead
  int in_flight = 2;                                 // sections gathered and not yet computed, at most
  bool overlap = true;                               // computation does not wait for reductions
  bool first_stays =
      false;  // what the first section gathers forward is in use until the last: nobody waits for its end
};

struct StreamTimes {
  double forward = 0, backward = 0;  // of a micro-batch after the first ones
  double all = 0;  // computation of all micro-batches, one forward and one backward pass after another
  double lag = 0;  // from its end until replicas have said all
};

// `stage`: indices into `sections`, in the order of the network.
StreamTimes play_streams(std::span<const StreamSection> sections, std::span<const std::int32_t> stage,
                         const StreamRules& rules, int micro_batches);

}  // namespace weft
