// Spawns the ranks that measure a list of events (run/measure.h) on this machine, and hears their samples as they come.
#pragma once

#include <functional>
#include <string>

#include "profile/event.h"
#include "run/launch.h"

namespace weft::runtime {

struct MeasureLaunchOptions {
  std::string rank_program;  // path of weft-rank
  std::string events;        // path of the list (profile/event_list.h)
  std::string directory;     // for what ranks write to stderr; the caller's to remove
  int ranks = 1, threads = 1;
  Seconds budget{60};
  std::string device = {};  // of computations: "cpu", "cuda", or empty: the rank's own choice
  std::function<void(std::size_t, const Sample&)> on_sample = {};
};

// Blocks until every rank has ended; a rank that fails, SIGINT and SIGTERM end all. What was heard until then counts.
Result<LaunchOutcome> launch_measuring(const MeasureLaunchOptions& options);

}  // namespace weft::runtime
