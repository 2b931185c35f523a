// Measures events where the rank runs: a list in, a sample of each out. What it times is what the executor does.
//
// A computation is the operator's kernel on tensors of the device's part; all ranks run it at the same time, so that
// cores, caches and memory are as busy as in a run, and rank 0 reports. A communication is packed, sent and unpacked as
// an executor's, among ranks in groups of its size, all groups at the same time, with some computing between runs as in a
// step; it lasts from its last member's beginning until rank 0 has what it brings, on the mean.
// Repeats end when the median is known well enough, or the event's share of the budget is spent.
#pragma once

#include <functional>
#include <span>

#include "bundle/bundle.h"
#include "profile/event.h"
#include "run/rendezvous.h"

namespace weft::runtime {

struct MeasureOptions {
  Seconds budget{60};       // of all events
  double precision = 0.01;  // standard error of the median, relative, that is good enough
  std::int64_t least_runs = 7, most_runs = 1000;
  Seconds timeout{60};  // of every communication
  Numbers numbers = Numbers::AsStored;
  std::string device = {};  // of computations: "cpu", "cuda", or empty: a GPU where there is one
};

// All ranks call it alike; `report` is called on rank 0: the event's place in the list and its sample, whose mean is that
// average. Returns the number of events that were measured: the first ones of the list. An error names the event.
Result<std::size_t> measure_events(std::span<const Event> events, int rank, int world, const Rendezvous& rendezvous,
                                   const MeasureOptions& options,
                                   const std::function<void(std::size_t, const Sample&)>& report);

// A rank as a process: reads the list in `path`, measures, and says "sample INDEX SECONDS SPREAD COUNT" a line on stdout.
// The exit code is 0, 1 where it failed, 2 for bad input.
int measure_rank(const std::string& path, const MeasureOptions& options);

}  // namespace weft::runtime
