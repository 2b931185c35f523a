// The forecast of a plan: step time, throughput, utilisation, memory, and where the time goes. All evaluation of plans
// starts here.
//
//   forecast(plan, AnalyticCost(plan.stack()))                      a plan's figures, for searches and comparisons
//   play_plan(plan, cost, {.record = true}), then judge(plan, …)  the same, with the run kept for traces and drawings
//
// Out of memory is a value: `feasible` is false, and the class at fault has the excess, the moment and the largest
// tensors. An error is the user's: a strategy that does not compile, a program that does not run.
// Not here: tables and traces (src/report), the choice of strategy.
// Cost: compiling, pricing and simulating the plan; recording adds some 30 bytes per executed task and a few passes
// over them.
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "forecast/flops.h"
#include "forecast/memory.h"
#include "forecast/timeline.h"
#include "forecast/uncertainty.h"
#include "plan/plan.h"
#include "price/price.h"
#include "simulate/engine.h"

namespace weft {

struct ForecastOptions {
  Network network = Network::Fair;
  bool fold = true;     // devices that do the same are one agent, where that is exact
  bool record = false;  // keep every task's times: breakdown, critical path and moments need them
  // Unless a device of each pipeline rank has more tasks than this in all, which would take much memory.
  std::int64_t most_recorded = std::numeric_limits<std::int64_t>::max();
  bool host = true;           // hosts take time to issue work; relative times know none
  std::size_t culprits = 5;   // how many of the largest groups of buffers are named
  bool critical_path = true;  // of a recorded step
};

// A plan that has been compiled, priced and simulated.
struct PlayedPlan {
  CompiledStrategy compiled;
  Priced priced;
  Run run;
  bool folded = false;
  bool recorded = false;  // the run has every task's times
};
// Wall-clock seconds of each part.
struct PlayTimes {
  double compile = 0, price = 0, simulate = 0;
};
// A compiled plan, priced and simulated: for pricing one program repeatedly. The stack is the plan's, except for
// constants of time.
struct PlayedProgram {
  Priced priced;
  Run run;
  bool folded = false, recorded = false;
};
Result<PlayedProgram> play_compiled(const Plan& plan, const SoftwareStack& stack, const CompiledStrategy& compiled,
                                    const CostModel& cost, const ForecastOptions& options = {},
                                    PlayTimes* times = nullptr);
Result<PlayedPlan> play_plan(const Plan& plan, CompiledStrategy compiled, const CostModel& cost,
                             const ForecastOptions& options = {}, PlayTimes* times = nullptr);
Result<PlayedPlan> play_plan(const Plan& plan, const CostModel& cost, const ForecastOptions& options = {},
                             PlayTimes* times = nullptr);

// Memory of devices that hold the same.
struct ClassForecast {
  std::vector<std::int64_t> ranks;
  std::int32_t pipeline_rank = 0;
  std::string device;   // title of its kind
  HeldBytes allocated;  // at the peak
  Bytes reserved, device_total;
  Bytes capacity, budget;  // budget: the capacity less the headroom; 0 if the capacity is unknown
  Fit fit = Fit::Fits;     // with the spread of measured against predicted memory; `fits` is without
  int communicators = 0;
  std::string peak_play;  // "F3": the body and micro-batch at the peak, or "step"
  std::string peak_at;    // the instruction's operator or collective
  std::optional<Picoseconds> peak_time = {};
  std::vector<MemoryOfClass::Alive> largest;  // at the peak; if recorded, or if it does not fit

  bool fits() const { return capacity.value == 0 || device_total <= budget; }
  Bytes overshoot() const { return fits() ? Bytes{} : device_total - budget; }
};

// The busiest link of a kind.
struct BusiestLink {
  std::string kind, busiest;  // "nvswitch", "node3.gpu0 > nvswitch"
  std::int64_t bytes = 0;     // carried in a step
  double capacity = 0;        // bytes per second
  double utilisation = 0;     // of the capacity over the step
};

// The share of one sort of work in the critical path.
struct PathShare {
  std::string what;  // "linear", "all-gather over tp", "send", "sharing links and device", "host"
  Picoseconds time = 0;
};

// The origins of a step's times (evidence.h).
struct StepEvidence {
  std::array<double, kOrigins> shares = {};  // of the work's time, by origin
  double uncertainty = 0;                    // standard deviation of the work's time as a share of it
};

struct Forecast {
  Picoseconds step = 0;
  double step_s = 0, samples_per_s = 0;
  TimeInterval interval;    // of the step
  double tokens_per_s = 0;  // 0: samples have no tokens
  StepFlops flops;
  Arithmetic arithmetic{};  // of matrix products, as the cost model uses it
  FlopsPerSecond peak;      // dense, of all ranks together
  double mfu = 0, mfu_causal = 0, hfu = 0;

  std::vector<ClassForecast> memory;  // by pipeline rank
  bool feasible = true;               // every device's total is within its budget
  double memory_margin = 0;           // half-width of log(measured / predicted) memory

  Picoseconds host_bound = 0;              // of the last-ending rank
  std::vector<std::int64_t> last = {};     // ranks that the last-ending agent represents
  std::vector<BusiestLink> links;          // busiest first
  std::optional<StepBreakdown> breakdown;  // of the last-ending agent, if recorded
  std::vector<PathShare> critical_path;    // most first, if recorded

  std::int64_t agents = 0, tasks = 0, events = 0;
  std::vector<std::string> assumptions;       // the plan's, and the forecast's own
  bool relative = false;                      // times order plans and are not seconds (the symbolic cost model)
  std::optional<StepEvidence> evidence = {};  // if asked for

  const ClassForecast* fullest() const;  // by excess, else by share of the budget
  Fit fit() const;                       // the worst of all devices'
};

// Dense, of all ranks together, in the arithmetic of matrix products.
FlopsPerSecond peak_of(const Plan& plan);

Forecast judge(const Plan& plan, const PlayedPlan& played, const ForecastOptions& options = {});

// ClassForecast::device_total and budget of every class, which need no times.
struct DeviceMemory {
  std::int32_t pipeline_rank = 0;
  Bytes device_total, budget;
};
std::vector<DeviceMemory> device_memory(const Plan& plan, const CompiledStrategy& compiled);

Result<Forecast> forecast(const Plan& plan, const CostModel& cost, const ForecastOptions& options = {});

// One agent of each class of devices that run the same instructions, in the order of ranks: enough to draw a run.
std::vector<AgentId> representatives(const Plan& plan, const PlayedPlan& played);

// "linear", "all-gather over tp": what an instruction does, without its operator's name.
std::string sort_of(const Program& program, const Graph& graph, InstructionId id);
// "layers.3.attn.qkv", "all-gather over tp of layers.3.attn.norm.y", "send layers.5.mlp_add.y".
std::string title_of(const Program& program, const Graph& graph, InstructionId id);

}  // namespace weft
