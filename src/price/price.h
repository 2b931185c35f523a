// Program × cost × cluster → workload: every instruction gets its work, every device its tasks. The step between
// compiling and simulating.
//
// Devices that do the same at the same time are one agent (`fold`): devices, communicator groups and links are coloured
// by what they do and touch until nothing separates them further (colour refinement); devices of one colour then have
// equal times in every run, exactly. Without folding every device is an agent of its own.
//
// Cost: folding is linear in devices and the links their groups use, per round of refinement (two to four); tasks are
// made for one device of each class. Not here: how long a piece takes (src/cost), when it happens (src/simulate).
#pragma once

#include "base/result.h"
#include "cost/cost.h"
#include "graph/training.h"
#include "program/program.h"
#include "strategy/stack.h"

namespace weft {

struct PriceOptions {
  bool fold = true;
  // What products run in instead of their operands' type: tf32 all of fp32, narrower types the linears of blocks.
  std::optional<Arithmetic> products = {};
  // What gradients and parameters are sent as, where it is not their own type.
  std::optional<DType> sent_gradients = {}, sent_parameters = {};
};

// What an agent stands for.
struct PricedAgent {
  std::vector<DeviceId> devices;  // the first is the one whose tasks it has
  int rank = 0;                   // of the pipeline
};

struct Priced {
  Workload workload;  // labels of tasks are instructions, of links the cluster's
  IdVec<AgentId, PricedAgent> agents;
  // Where no link is shared by two groups of one class, a link that serves one after the other treats them alike too.
  bool exact_under_fifo = true;
};

// An error names a device that the cluster does not have.
Result<Priced> price(const Program& program, const Schedule& schedule, const TrainingGraph& training,
                     const Cluster& cluster, const CostModel& cost, const SoftwareStack& stack,
                     const PriceOptions& options = {});

}  // namespace weft
