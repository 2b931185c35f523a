#include "hybrid/expectation.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr double kLeast = 0.01;  // doubt that remains however many plans agree

}  // namespace

Expectation::Kind Expectation::kind_of(const HybridPlan& plan) const {
  return {.schedule = plan.pp > 1 ? 1 + static_cast<int>(plan.schedule) : 0,
          .zero = plan.zero >= 2 ? plan.zero : 0,
          .divided_layers = plan.tp * plan.ep > 1,
          .divided_sequence = plan.cp > 1,
          .tied = tied_ && plan.pp > 1,
          .modules = plan.recompute > PlanRecompute::Op};
}

// Of a kind: as if one more plan had the mean of all kinds, and of those one more no error.
double Expectation::mean(const Errors& of) const {
  const double all = all_.sum / (all_.count + 1);
  return (of.sum + all) / (of.count + 1);
}

void Expectation::learn(const HybridPlan& plan, double composed_s, double simulated_s) {
  const double error = simulated_s / composed_s - 1;
  for (Errors* each : {&all_, &by_kind_[kind_of(plan)]}) {
    each->sum += error;
    each->squares += error * error;
    ++each->count;
  }
}

double Expectation::factor(const HybridPlan& plan) const {
  const auto known = by_kind_.find(kind_of(plan));
  return 1 + mean(known == by_kind_.end() ? Errors{} : known->second);
}

double Expectation::doubt(const HybridPlan& plan, double before) const {
  const auto known = by_kind_.find(kind_of(plan));
  const Errors of = known == by_kind_.end() ? Errors{} : known->second;
  if (of.count == 0) return std::max(kLeast, 2 * before);  // what other kinds do tells little
  const double middle = mean(of);
  const double squares = of.squares - 2 * middle * of.sum + of.count * middle * middle;
  return std::max(kLeast, std::sqrt((before * before + std::max(0.0, squares)) / (of.count + 1)));
}

}  // namespace weft
