// The one judge of all searches: a strategy is planned, compiled, priced and simulated in full. Memory is a hard limit.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "forecast/forecast.h"
#include "problem/problem.h"

namespace weft {

// What a plan takes, in the order in which plans are compared: what does not fit loses to what does.
struct Score {
  Bytes over;            // what the fullest device lacks
  Picoseconds step = 0;  // of time

  auto operator<=>(const Score&) const = default;
  bool fits() const { return over.value == 0; }
};

// A strategy and its forecast.
struct Judged {
  std::string strategy;  // shorthand or a file
  std::optional<Parallelism> parallelism;
  Strategy tree;
  Forecast forecast;

  Score score() const {
    const ClassForecast* full = forecast.fullest();
    return {full ? full->overshoot() : Bytes{}, forecast.step};
  }
};

// The strategy of a plan that was judged, to plan it again.
Result<StrategyChoice> choice_of(const TrainingJob& job, const Judged& judged);

// An error: the strategy does not apply to the model or the cluster, or the compiler does not do it.
// `graphs`: of plans of this problem that were judged before.
Result<Judged> judge_strategy(const PlanProblem& problem, const CostModel& cost, StrategyChoice choice,
                              GraphCache* graphs = nullptr);

}  // namespace weft
