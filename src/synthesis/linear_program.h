// A linear programme, solved by COIN-OR CLP (Debian: coinor-libclp-dev). The only file that knows CLP.
//
//   minimise  Σ cost·x   subject to   lower ≤ rows·x ≤ upper,  least ≤ x ≤ most
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "base/result.h"

namespace weft {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

class LinearProgram {
 public:
  using Terms = std::vector<std::pair<std::size_t, double>>;  // variable and coefficient

  std::size_t add_variable(double cost, double least = 0, double most = kUnbounded);
  void add_row(Terms terms, double lower, double upper);

  // The values of the variables. An error: there is no solution, or it is unbounded.
  Result<std::vector<double>> solve() const;

 private:
  struct Row {
    Terms terms;
    double lower, upper;
  };
  std::vector<double> cost_, least_, most_;
  std::vector<Row> rows_;
};

}  // namespace weft
