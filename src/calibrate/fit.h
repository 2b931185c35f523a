// The least of a robust loss over constants, by pattern search on a model of the rows.
//
// Near a point, a run's time is a product of powers of the constants: with x_c the logarithm of constant c over its
// value at the point, row r's error is
//
//   e_r(x) = error_r + Σ_c slope_cr · x_c                  error_r = log(predicted / measured)
//
// and the loss is Σ_r weight_r ρ(e_r / kScale) + ½ Σ_c ((x_c + from_prior_c) / spread_c)², with ρ(u) = √(1 + u²) − 1:
// it counts small errors squared and large ones as they are, so that an outlier does not pull. The second sum pulls
// each constant to its prior: where rows say little, it stays there.
//
// The search steps along one constant at a time, up and down, halves the steps where nothing is gained, and after a
// round of gains tries the round's sum once more. It uses no derivative of the loss and no random number.
// Cost: rounds × constants × rows that a constant touches.
#pragma once

#include <cstddef>
#include <vector>

namespace weft {

inline constexpr double kScale = 0.05;  // errors of this size and less are noise of releases (README of the tables)

struct FitProblem {
  struct Slope {
    std::size_t row = 0;
    double slope = 0;
  };
  std::vector<double> error, weight;       // by row; weight 0: not fitted
  std::vector<std::vector<Slope>> slopes;  // by constant; rows that it does not touch are left out
  std::vector<double> low, high;           // by constant: how far x may go
  std::vector<double> from_prior, spread;  // by constant: log(value at the point / prior), and how far is one unit

  double loss(const std::vector<double>& x) const;
};

// x at the least loss found.
std::vector<double> pattern_search(const FitProblem& problem);

}  // namespace weft
