// The steady state of a run: micro-batch after micro-batch, a pipeline does the same, a constant time later.
//
// Let the machine's state be that of an earlier time, but shifted in time, and let every agent have gone forward by
// plays that repeat the plays before them with later micro-batches. Then the same events follow again, as long as the
// plays go on to repeat: such repetitions are counted and not simulated. All numbers are integers, so the result is that
// of a full run, bit for bit.
//
// Not for recorded runs, which have the times of every task.
// Cost: when a stream comes to another play, two states are compared, mostly to their first difference; states are
// saved at the first, second, fourth, … of these times. A state comes again after the first few micro-batches, when
// queues between stages and between hosts and devices are full; where periods of several stages nearly agree, late or
// never.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "simulate/machine.h"

namespace weft::engine {

class SteadyState {
 public:
  explicit SteadyState(Machine& machine);

  // Simulates to the end; false as Machine::run.
  bool run();

  std::int64_t skipped() const { return skipped_; }  // tasks that were counted and not simulated

 private:
  static constexpr std::int64_t kAnyNumber = std::numeric_limits<std::int64_t>::max();

  struct Earlier {
    Checkpoint state;
    Tally tally;
    std::vector<Progress> progress;
  };

  void look();
  std::vector<Progress> progress() const;
  // How many more times what happened since the earlier state happens again.
  std::int64_t repetitions();
  // Of one agent, while it goes forward by `plays` each time; none: the state is another one.
  std::optional<std::int64_t> repetitions(std::uint32_t agent, const Progress& then, const Progress& now,
                                          std::uint32_t& plays) const;
  void repeat(std::int64_t times);

  Machine& machine_;
  std::uint32_t agent_ = 0, stream_ = 0;  // that is watched
  std::uint32_t play_ = kNoStep;          // of the watched stream, when it was last looked at
  std::int64_t looks_ = 0, next_save_ = 1;
  std::optional<Earlier> earlier_;
  std::vector<std::uint32_t> plays_;  // scratch: by agent, how far it goes each time
  std::int64_t skipped_ = 0;
};

}  // namespace weft::engine
