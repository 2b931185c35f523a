// `weft show strategy`: a plan as an expert would sketch it, as text and as JSON.
//
// The placement of ranks, their groups and links, the split and the communication of one layer of each kind, the
// sharding of parameters, the synchronisation of gradients, the schedule and its bubble, memory by stage, and the
// traffic of a step. Not here: times (src/simulate).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compile/from_strategy.h"
#include "plan/plan.h"
#include "program/memory.h"
#include "report/groups.h"
#include "report/operators.h"
#include "report/storage.h"
#include "report/traffic.h"

namespace weft {

struct StageReport {
  std::int64_t stage = 0, rank = 0, chunk = 0;
  std::vector<std::string> modules;   // layers, and modules outside of them
  std::int64_t parameters = 0;        // of the whole stage; tied ones count on every stage that holds them
  Bytes sent_forward, sent_backward;  // to other stages, by one device for one micro-batch
};

// Data-parallel collectives once per step: reductions of gradients, gathers of updated weights.
struct SyncReport {
  Cargo cargo{};
  Collective collective{};
  std::string group;
  DType dtype{};
  bool in_backward = false;         // during the backward pass of the last micro-batch; otherwise after it
  std::vector<std::int64_t> count;  // by pipeline rank
  std::vector<Bytes> bytes;         // sent per device, by pipeline rank
};

struct StrategyReport {
  std::vector<GroupKind> groups;
  std::vector<StageReport> stages;
  std::vector<OperatorSection> sections;
  std::vector<HeldKind> held;
  std::vector<HeldBytes> memory;        // by pipeline rank, at the peak
  std::vector<std::int32_t> in_flight;  // by pipeline rank: micro-batches whose activations are held at once
  double bubble = 0;                    // share of the step with equal stages and free communication
  std::vector<SyncReport> syncs;
  std::vector<StepTraffic> traffic;
};

StrategyReport report_strategy(const Plan& plan, const CompiledStrategy& compiled);

// A page or two of text, at most 120 columns wide.
std::string describe(const Plan& plan, const CompiledStrategy& compiled, const StrategyReport& report);
// docs/schema/show-strategy.schema.json
nlohmann::json to_json(const Plan& plan, const CompiledStrategy& compiled, const StrategyReport& report);

// The most that one device of each pipeline rank holds at a time (program/memory.h).
std::vector<HeldBytes> memory_of(const Plan& plan, const CompiledStrategy& compiled);

// The parts that other reports share: the headline, and memory by pipeline rank.
std::string headline(const Plan& plan);
std::string memory_table(const Plan& plan, const Schedule& schedule, const std::vector<HeldBytes>& memory,
                         const std::vector<std::int32_t>& in_flight);
std::string traffic_table(const std::vector<StepTraffic>& traffic, const Schedule& schedule);
nlohmann::json plan_json(const Plan& plan);
nlohmann::json to_json(const HeldBytes& held);
nlohmann::json to_json(const std::vector<StepTraffic>& traffic);

}  // namespace weft
