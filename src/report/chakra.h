// A plan's step as Chakra execution traces, one file a rank, for ASTRA-sim and other simulators of networks.
//
// Nodes are what the simulator of this repository plays: computations with the time that they take alone, FLOPs and bytes
// (so a simulator may use its own roofline), collectives with their groups, sends and receives between pairs, copies to
// and from the host. A node depends on the previous one of its stream and on what its instruction waits for; ordering
// stands in data_deps, the only dependencies that ASTRA-sim's reader honours. Times of communications are left to the
// simulator that reads the trace.
//
// Not in a trace: the host's launches, interference between computation and communication, products that a collective
// moves beside in chunks (it follows them whole), memory. Versions and meanings of fields: docs/exports.md.
// Cost: linear in the tasks of all ranks; one rank's trace is in memory at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "forecast/forecast.h"

namespace weft {

struct ChakraTrace {
  std::string text;  // length-delimited records, metadata first
  std::int64_t nodes = 0;
};

class ChakraTraces {
 public:
  // Plan, played plan and cost model must outlive it; the error names what a trace cannot say.
  static Result<ChakraTraces> of(const Plan& plan, const PlayedPlan& played, const CostModel& cost);
  ~ChakraTraces();
  ChakraTraces(ChakraTraces&&) noexcept;

  std::int64_t ranks() const;
  // The file of a rank. The error: more nodes than readers take.
  Result<ChakraTrace> trace_of(std::int64_t rank) const;
  // The ranks of every group of collectives, in ascending order; the first is number 1 (ASTRA-sim takes 0 for all ranks).
  const std::vector<std::vector<std::int64_t>>& groups() const;

 private:
  class Writer;
  explicit ChakraTraces(std::unique_ptr<Writer> writer);
  std::unique_ptr<Writer> writer_;
};

struct ChakraCounts {
  std::int64_t files = 0, nodes = 0, bytes = 0, groups = 0;
};
// Writes PREFIX.0.et, PREFIX.1.et, … and PREFIX.groups.json: {"1": [0, 1], …}. `progress`, if any, gets the share that is written; false:
// stop, an error.
Result<ChakraCounts> write_chakra(const std::string& prefix, const ChakraTraces& traces,
                                  const std::function<bool(double)>& progress = {});

}  // namespace weft
