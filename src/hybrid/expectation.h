// What simulation is expected to give for a composed plan, and with how much doubt, from the plans of this search that
// were composed and simulated. Composition errs alike where plans are alike, so errors are kept by kind of plan: its
// schedule, ZeRO stage if it communicates in every micro-batch, tensor or expert parallelism, context parallelism, tied
// embeddings on two stages, recomputation by modules. Before a kind has been simulated, its errors are those of all
// kinds, and their spread is twice that of compose_spread.h.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "hybrid/hybrid_plan.h"

namespace weft {

class Expectation {
 public:
  explicit Expectation(bool tied_embeddings) : tied_(tied_embeddings) {}

  void learn(const HybridPlan& plan, double composed_s, double simulated_s);
  // Composed seconds are multiplied by this …
  double factor(const HybridPlan& plan) const;
  // … and are wrong by this share, one standard deviation.
  // `before`: what tests have seen of its kind (compose_spread.h).
  double doubt(const HybridPlan& plan, double before = 0.01) const;

 private:
  struct Kind {
    int schedule = 0;             // 0: no pipeline; 1 + PlanSchedule
    int zero = 0;                 // the stage that communicates in every micro-batch, 2 or 3
    bool divided_layers = false;  // by tensor or expert parallelism
    bool divided_sequence = false;
    bool tied = false;     // embeddings on two stages
    bool modules = false;  // are recomputed

    auto operator<=>(const Kind&) const = default;
  };
  Kind kind_of(const HybridPlan& plan) const;
  struct Errors {
    double sum = 0, squares = 0;  // of simulated / composed − 1
    int count = 0;
  };
  double mean(const Errors& of) const;

  bool tied_ = false;
  Errors all_;
  std::map<Kind, Errors> by_kind_;
};

}  // namespace weft
