// The one judge of all searches: a strategy is planned, compiled, priced and simulated in full. Memory is a hard limit.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "forecast/forecast.h"
#include "problem/problem.h"

namespace weft {

// How plans are compared: first by the memory that they lack, then by step time.
struct Score {
  Bytes over;            // bytes over the budget of the fullest device
  Picoseconds step = 0;  // picoseconds

  auto operator<=>(const Score&) const = default;
  bool fits() const { return over.value == 0; }
};

// A strategy and its forecast.
struct Judged {
  std::string strategy;  // shorthand or the name of a file
  std::optional<Parallelism> parallelism;
  Strategy tree;
  Forecast forecast;

  Score score() const {
    const ClassForecast* full = forecast.fullest();
    return {full ? full->overshoot() : Bytes{}, forecast.step};
  }
};

// The strategy of a judged plan, to make the plan again.
Result<StrategyChoice> choice_of(const TrainingJob& job, const Judged& judged);

// Whether a judged plan has where its time goes (Forecast::breakdown), for which every task is recorded and none is
// only counted.
enum class Detail : bool { None, WhereTimeGoes };

// An error: the strategy does not apply to the model or the cluster, or does not compile. `graphs`: a cache of training
// graphs for plans of this problem.
Result<Judged> judge_strategy(const PlanProblem& problem, const CostModel& cost, StrategyChoice choice,
                              GraphCache* graphs = nullptr, Detail detail = Detail::None);

}  // namespace weft
