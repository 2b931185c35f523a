// A recorded run as a Chrome trace (JSON), for Perfetto and chrome://tracing.
//
// A process is an agent, named by its stage, ranks and node; its threads are its streams, the host, and its
// micro-batches. Complete events are tasks, with waits in meetings apart; flows join the parties of a collective or
// transfer; counters are memory by kind. Times are microseconds with every picosecond.
//
// The file is written as it is made, under another name until it is whole: memory does not grow with the run.
// Where all tasks would be more than `most_tasks`, only the first micro-batches and the last are told operator by
// operator; of the others, bodies and what goes between stages and replicas.
#pragma once

#include <functional>
#include <string>

#include "base/whole_file.h"
#include "forecast/forecast.h"

namespace weft {

struct TraceOptions {
  std::vector<std::int64_t> ranks = {};  // to trace; none: one of each class
  std::int64_t most_tasks = 100'000;     // told one by one; 0: all
  // Called now and then with the share that is written; false: stop.
  std::function<bool(double)> progress = {};
};

struct TraceCounts {
  std::int64_t processes = 0, events = 0, bytes = 0;
  std::int64_t detailed_micro_batches = 0;  // told operator by operator
};

// The ranks of a list, "0,8,16-23" or "all". An error names what is not a rank.
Result<std::vector<std::int64_t>> parse_ranks(std::string_view list, std::int64_t count);

// `played` is recorded.
Result<TraceCounts> write_trace(WholeFile& file, const Plan& plan, const PlayedPlan& played,
                                const TraceOptions& options = {});

}  // namespace weft
