// How far composition is from simulation, by kind of plan. A search simulates plans that composition finds a little
// slower than the best one: by as much as composition may exceed simulation for plans of that kind.
//
// The figures are the largest errors that compose_rules_test.cpp and compose_models_test.cpp saw, rounded up; those
// tests fail where a plan is beyond its kind.
#pragma once

#include <string>

#include "hybrid/hybrid_plan.h"

namespace weft {

// What the composer has rules of its own for.
struct CompositionKind {
  bool one_stack = true;  // of equal layers between an embedding and a head
  int zero = 0;           // 0 and 1 are one kind: gradients are reduced once per step
  int schedule = 0;       // 0: no pipeline; 1 + PlanSchedule
  bool experts = false;   // spread over devices
  bool tied = false;      // an embedding that two stages share
  bool recompute = false;

  auto operator<=>(const CompositionKind&) const = default;
};
CompositionKind composition_kind(const PlanProblem& problem, const HybridPlan& plan);
std::string print(const CompositionKind& kind);

// Fractions of the simulated time by which the composed time may be above or below it, and a bound above it.
struct CompositionSpread {
  double above = 0, below = 0, bound = 0;
};
CompositionSpread composition_spread(const CompositionKind& kind);

}  // namespace weft
