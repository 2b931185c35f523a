// One rank as a process: reads the bundle, meets the others, trains, reports.
//
// Reports are lines of text (launch.h) to the launcher's pipe; without one, to stdout, in words.
#pragma once

#include <optional>
#include <string>

#include "base/units.h"

namespace weft::runtime {

struct RankOptions {
  std::string bundle;          // path of the file
  bool remove_bundle = false;  // once it is read
  std::string data;            // a file of tokens; empty: synthetic ones
  int steps = 1;
  bool check = false;
  std::string device;        // "cpu", "cuda", or empty: a GPU where there is one
  std::string backend;       // "gloo", "nccl", or empty: NCCL where every rank has a GPU of its own
  std::optional<int> alone;  // plays this device's part by itself (Backend::None)
  Seconds at_most{0};        // ends after the step, of at least a few, in which this time is over; 0: after `steps`
  Seconds timeout{60};
};

// The exit code: 0 done, 1 a check or the run failed, 2 bad input.
int run_rank(const RankOptions& options);

}  // namespace weft::runtime
