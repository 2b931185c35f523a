// What simulation is expected to give for a composed plan, and with how much doubt, from the plans of this search that
// were composed and simulated. Composition errs alike where plans are alike, so errors are kept by kind of plan: ZeRO
// that communicates in every micro-batch, split backward passes, DualPipe, tensor or expert parallelism, context parallelism, tied embeddings on two stages,
// recomputation by modules. Before a kind has been simulated, its errors are those of all kinds, and their spread that
// of compose_test.cpp.
#pragma once

#include <array>
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
  // `before`: before a plan of its kind was simulated (compose_spread.h).
  double doubt(const HybridPlan& plan, double before = 0.01) const;

 private:
  using Kind = std::array<bool, 7>;
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
