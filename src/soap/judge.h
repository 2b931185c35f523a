// What a SOAP strategy takes, in full: planned, compiled, priced and played anew, its memory counted.
#pragma once

#include "compile/from_strategy.h"
#include "cost/cost.h"
#include "forecast/memory.h"
#include "plan/memory_budget.h"
#include "simulate/engine.h"
#include "soap/op_strategy.h"
#include "strategy/stack.h"

namespace weft {

// What a strategy is judged on. Everything outlives the search.
struct SoapProblem {
  const TrainingGraph& training;
  const Cluster& cluster;
  const CostModel& cost;
  const SoftwareStack& stack;
  double headroom = kHeadroom;
  NumberTypes types = {};
};

struct SoapJudgement {
  Picoseconds fifo = 0, fair = 0;  // of a step
  Bytes over_budget;               // that the fullest device lacks; 0: it fits
  Bytes most_held;                 // of the fullest device, in all
  std::int64_t bytes_moved = 0;    // between devices, in a step, all together
};

// An error: what does not compile.
Result<SoapJudgement> judge(const SoapProblem& problem, const SoapStrategy& strategy);

// The same under fair sharing alone, without memory; devices that do the same are one, which is exact. Many times
// quicker where nodes are alike.
struct FairPlay {
  Program program;
  Picoseconds time = 0;
};
Result<FairPlay> play_fair(const SoapProblem& problem, const SoapStrategy& strategy);
// Under links that are first in, first out, gradients in these buckets; devices that are the same are one. What an
// Exploration of the strategy would say, for less; where that is more than the bound, perhaps not all of it.
Result<Picoseconds> play_fifo(const SoapProblem& problem, const SoapStrategy& strategy, std::vector<int> buckets,
                              std::optional<Picoseconds> bound);
// The same in two steps, for whoever can tell from the program that it is not worth playing.
Result<Program> compile_strategy(const SoapProblem& problem, const SoapStrategy& strategy);
Result<Picoseconds> play_fair(const SoapProblem& problem, const Program& program);

// Bytes that devices send in a step: collectives by the ring algorithm, transfers by their blocks.
std::int64_t bytes_sent(const Program& program, const Graph& graph);

// The fullest device's need against its memory less the headroom.
struct MemoryNeed {
  Bytes most_held, over_budget;
};
MemoryNeed memory_need(const SoapProblem& problem, const Program& program, const Schedule& schedule);

}  // namespace weft
