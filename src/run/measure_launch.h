// Spawns the ranks that measure a list of events (run/measure.h) on this machine, and hears their samples as they come.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profile/event.h"
#include "run/launch.h"

namespace weft::runtime {

struct MeasureLaunchOptions {
  std::string rank_program;  // path of weft-rank
  std::string events;        // path of the list (profile/event_list.h)
  std::string directory;     // for what ranks write to stderr; the caller's to remove
  int ranks = 1, threads = 1;
  int beside = 0;  // busy loops on the cores of every rank (busy_loops.h)
  Seconds budget{60};
  std::string device = {};  // of computations: "cpu", "cuda", or empty: the rank's own choice
  std::function<void(std::size_t, const Sample&)> on_sample = {};
};

// What one device of many computes: ranks play their devices' parts of a bundle by themselves (Backend::None), all at
// once, and leave timelines (timeline.h) in the directory. Those after the first `timed` are there to keep the machine as
// busy as a run would; they end when the timed ones have.
struct PlayLaunchOptions {
  std::string rank_program, bundle, directory;
  std::vector<int> devices;  // by rank
  int timed = 1, threads = 1;
  int beside = 0;
  Seconds at_most{2};
};
Result<LaunchOutcome> launch_playing(const PlayLaunchOptions& options);

// Blocks until every rank has ended; a rank that fails, SIGINT and SIGTERM end all. What was heard until then counts.
Result<LaunchOutcome> launch_measuring(const MeasureLaunchOptions& options);

}  // namespace weft::runtime
