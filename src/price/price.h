// Program × cost × cluster → workload: every instruction gets its cost, every device its tasks. The step between
// compiling and simulating.
//
// Devices that do the same at the same time are one agent (`folding.h`); without folding every device is an agent.
//
// Cost: folding is linear in devices and the links their groups use, per round of refinement (two to four); tasks are
// made for one device of each class. Not here: isolated times (src/cost), times in the run (src/simulate).
#pragma once

#include "base/result.h"
#include "cost/cost.h"
#include "graph/training.h"
#include "program/issue_order.h"
#include "program/last_micro_batch.h"
#include "strategy/stack.h"

namespace weft {

// Which devices are one agent. None: each is its own. Same: those that compute the same and communicate in the same
// groups, which is exact under any network. Alike: equivalent ones (`folding.h`), which is exact under fair sharing.
enum class Fold : std::uint8_t { None, Same, Alike };

struct PriceOptions {
  Fold fold = Fold::Alike;
  std::optional<LastMicroBatch> last = {};  // if it is smaller than the others
};

// The devices that an agent represents.
struct PricedAgent {
  std::vector<DeviceId> devices;  // the first is the one whose tasks it has
  int rank = 0;                   // of the pipeline
};

struct Priced {
  Workload workload;  // labels of tasks are instructions, of links the cluster's
  IdVec<AgentId, PricedAgent> agents;
  std::vector<std::vector<IssuedBody>> issued;  // by pipeline rank: the body and micro-batch of each play
  // If no link is shared by two groups there is no queueing, and folding equivalent devices is exact under fifo too.
  bool exact_under_fifo = true;
};

// The error names a device that the cluster does not have.
Result<Priced> price(const Program& program, const Schedule& schedule, const TrainingGraph& training,
                     const Cluster& cluster, const CostModel& cost, const SoftwareStack& stack,
                     const PriceOptions& options = {});

}  // namespace weft
