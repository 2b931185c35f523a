// SimGrid's plain fair sharing as an oracle for tests and benchmarks.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::testing {

struct SimGridFlow {
  double start = 0;  // seconds
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> links;
};

struct SimGridAnswer {
  std::vector<double> finish;  // seconds, per flow
  double wall_seconds = 0;     // wall time of its simulation
};

// Runs in a child process: SimGrid has one engine per process. Links have bandwidths in bytes per second and no
// latency.
SimGridAnswer simgrid_finish_times(const std::vector<double>& bandwidths, const std::vector<SimGridFlow>& flows);

}  // namespace weft::testing
