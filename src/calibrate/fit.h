// Minimisation of a robust loss over constants, by pattern search on a model of the rows.
//
// Near a point, a run's time is a product of powers of the constants: with x_c the logarithm of constant c over its
// value at the point, row r's error is
//
//   e_r(x) = error_r + Σ_c slope_cr · x_c                  error_r = log(predicted / measured)
//
// and the loss is Σ_r weight_r ρ(e_r / kScale) + ½ Σ_c ((x_c + from_prior_c) / spread_c)², with ρ(u) = √(1 + u²) − 1:
// quadratic in small errors and linear in large ones, so that outliers have little weight. The second sum pulls each
// constant to its prior, where it stays if few rows depend on it.
//
// The search steps along one constant at a time, up and down, halves the steps if there is no gain, and after a
// successful round repeats the sum of its steps. It uses no derivative of the loss and no random number.
// Cost: rounds × constants × rows that depend on a constant.
#pragma once

#include <cstddef>
#include <vector>

namespace weft {

inline constexpr double kScale = 0.05;  // errors of this size are noise between releases (README of the tables)

struct FitProblem {
  struct Slope {
    std::size_t row = 0;
    double slope = 0;
  };
  std::vector<double> error, weight;       // by row; weight 0: not fitted
  std::vector<std::vector<Slope>> slopes;  // by constant, of the rows that depend on it
  std::vector<double> low, high;           // by constant: bounds of x
  std::vector<double> from_prior, spread;  // by constant: log(value at the point / prior), and spread_c

  double loss(const std::vector<double>& x) const;
};

// x at the lowest loss found.
std::vector<double> pattern_search(const FitProblem& problem);

}  // namespace weft
