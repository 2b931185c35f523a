// Time and memory of a SOAP strategy: planned, compiled, priced and simulated from scratch.
#pragma once

#include "compile/from_strategy.h"
#include "cost/cost.h"
#include "forecast/memory.h"
#include "plan/memory_budget.h"
#include "simulate/engine.h"
#include "soap/op_strategy.h"
#include "strategy/stack.h"

namespace weft {

// The problem on which strategies are judged. Everything referenced outlives the search.
struct SoapProblem {
  const TrainingGraph& training;
  const Cluster& cluster;
  const CostModel& cost;
  const SoftwareStack& stack;
  double headroom = kHeadroom;
  NumberTypes types = {};
};

struct SoapJudgement {
  Picoseconds fifo = 0, fair = 0;  // step time by network model
  Bytes over_budget;               // of the fullest device; 0: it fits
  Bytes most_held;                 // total of the fullest device
  std::int64_t bytes_moved = 0;    // between devices in a step, in total
};

// An error: it does not compile.
Result<SoapJudgement> judge(const SoapProblem& problem, const SoapStrategy& strategy);

// Only the time under fair sharing. Devices that do the same are simulated as one, which is exact and many times faster
// where nodes are alike.
struct FairPlay {
  Program program;
  Picoseconds time = 0;
};
Result<FairPlay> play_fair(const SoapProblem& problem, const SoapStrategy& strategy);
// Only the time with fifo links and gradients in these buckets: the makespan of an Exploration of the strategy,
// computed faster. If that exceeds `bound`, some lower bound on it that exceeds `bound` too.
Result<Picoseconds> play_fifo(const SoapProblem& problem, const SoapStrategy& strategy, std::vector<int> buckets,
                              std::optional<Picoseconds> bound);
// play_fair in two steps, to skip the simulation of a program that moves too many bytes.
Result<Program> compile_strategy(const SoapProblem& problem, const SoapStrategy& strategy);
Result<Picoseconds> play_fair(const SoapProblem& problem, const Program& program);

// Bytes that devices send in a step: collectives by the ring algorithm, transfers by the blocks that move.
std::int64_t bytes_sent(const Program& program, const Graph& graph);

// Memory of the fullest device, and the most that any device is over its budget.
struct MemoryNeed {
  Bytes most_held, over_budget;
};
MemoryNeed memory_need(const SoapProblem& problem, const Program& program, const Schedule& schedule);

}  // namespace weft
