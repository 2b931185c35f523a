// The optimal strategy of a small network on the first four devices of one node, by branch and bound.
//
// The space: every unit of operators (proposals.h) on any 1, 2 or 4 devices in ascending order, split into as many
// parts along one or two axes, or replicated on all; the simple operators of a unit follow its head, or from some
// operator on are replicated on all devices. Devices are interchangeable, so they are first used in ascending order. A
// branch assigns units in order; its lower bound is in optimum_bound.h. Leaves are simulated with fifo links and the
// gradient buckets of a full compilation.
//
// Optimality rests on the bound: `checks` strategies are simulated, and no bound of a branch that contains one may
// exceed its time. Cost: LeNet a second, two steps of RNNLM ten. Not for networks of more than a dozen units.
#pragma once

#include <limits>

#include "soap/judge.h"

namespace weft {

struct OptimumRequest {
  Picoseconds known = 0;  // time of a known strategy: only better ones are searched
  std::int64_t most_nodes = 50'000'000;
  std::int64_t checks = 0;
};

struct Optimum {
  Picoseconds time = 0;  // of the best, or `known`
  bool complete = false;
  Picoseconds open = std::numeric_limits<Picoseconds>::max();  // the least bound of unexplored branches; the time
                                                               // itself if complete
  std::optional<SoapStrategy> better;                          // a strategy better than the known one
  Picoseconds root = 0;                                        // lower bound of all strategies
  double strategies = 0;
  std::vector<std::pair<std::string, std::size_t>> units;  // the first operator of each, and its configurations
  std::int64_t nodes = 0, leaves = 0, checked = 0;
  double closest = 0;  // the largest bound over time of a checked strategy: at most 1
};

// Host time of the stack is ignored (without_host_time).
Optimum find_optimum(const SoapProblem& problem, const OptimumRequest& request);

}  // namespace weft
