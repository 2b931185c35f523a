// A recorded run as a Chrome trace (JSON), for Perfetto and chrome://tracing.
//
// A process is an agent, named by its stage, ranks and node; its threads are its streams, the host, and its
// micro-batches. Complete events are tasks, with their waits for other parties as separate events; flows connect the
// parties of a collective or transfer; counters are memory by kind. Times are microseconds, exact to the picosecond.
//
// The file is streamed, under a temporary name until it is complete: memory does not grow with the run. If there are
// more than `most_tasks` tasks, only the first micro-batches and the last are written operator by operator; of the
// others, bodies and communication between stages and replicas.
//
// A run that was measured is written beside the simulated one, as a second process of every rank. Its host shows when it
// packed and issued communications and waited for them; its memory is what was allocated.
#pragma once

#include <functional>
#include <string>

#include "base/whole_file.h"
#include "forecast/forecast.h"
#include "forecast/measured_run.h"

namespace weft {

struct TraceOptions {
  std::vector<std::int64_t> ranks = {};  // to trace; none: one of each class
  std::int64_t most_tasks = 100'000;     // tasks written individually; 0: all
  // Called from time to time with the share that is written; false: stop.
  std::function<bool(double)> progress = {};
};

struct TraceCounts {
  std::int64_t processes = 0, events = 0, bytes = 0;
  std::int64_t detailed_micro_batches = 0;  // written operator by operator
};

// The ranks of a list, "0,8,16-23" or "all". The error names the item that is not a rank.
Result<std::vector<std::int64_t>> parse_ranks(std::string_view list, std::int64_t count);

// `played` must be recorded; `measured`, if any, is of the same workload.
Result<TraceCounts> write_trace(WholeFile& file, const Plan& plan, const PlayedPlan& played,
                                const TraceOptions& options = {}, const MeasuredRun* measured = nullptr);

}  // namespace weft
