// The best strategy of a small network on the first four devices of one node, for certain: branch and bound.
//
// The space: every unit of operators (proposals.h) on any 1, 2 or 4 of the devices in ascending order, split into as
// many parts along one or two axes, or whole on all of them; the simple operators of a unit follow its head, or are
// whole on all devices from one of them on. Devices are interchangeable: who comes first has the lower number. A branch
// assigns units in order; optimum_bound.h says how little it can take. Leaves are simulated, links first in, first out,
// gradients in the buckets that a full compilation gives them.
//
// The proof rests on the bound: `checks` strategies are simulated, and no bound on the way to one may be above its
// time. Cost: LeNet a second, two steps of RNNLM ten. Not for networks of more than a dozen units.
#pragma once

#include <limits>

#include "soap/judge.h"

namespace weft {

struct OptimumRequest {
  Picoseconds known = 0;  // of a strategy: better ones are looked for
  std::int64_t most_nodes = 50'000'000;
  std::int64_t checks = 0;
};

struct Optimum {
  Picoseconds time = 0;  // of the best, or `known`
  bool complete = false;
  Picoseconds open = std::numeric_limits<Picoseconds>::max();  // the least bound of what was not looked into; complete:
                                                               // the time itself
  std::optional<SoapStrategy> better;                          // than the known one
  Picoseconds root = 0;                                        // the bound of all strategies
  double strategies = 0;
  std::vector<std::pair<std::string, std::size_t>> units;  // the first operator of each, and its configurations
  std::int64_t nodes = 0, leaves = 0, checked = 0;
  double closest = 0;  // that a bound came to the time of a checked strategy, as a share of it
};

// Hosts of the stack take no time (without_host_time).
Optimum find_optimum(const SoapProblem& problem, const OptimumRequest& request);

}  // namespace weft
