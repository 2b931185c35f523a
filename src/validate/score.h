// How far predictions are from measurements, and whether they are in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

double mean(std::span<const double> values);  // 0 of none
double median(std::vector<double> values);    // 0 of none

// Pairs of runs predicted in the measured order, and in the opposite one. Runs measured within `tie` of each other are
// not a pair: their order is noise.
struct Concordance {
  std::int64_t same = 0, other = 0;

  std::int64_t pairs() const { return same + other; }
  double tau() const;  // Kendall's: (same − other) / pairs; 1 of none
  Concordance& operator+=(const Concordance& more);
};
// Predicted ties count half for either order, which cancels out. Cost: quadratic.
Concordance concordance(std::span<const double> measured, std::span<const double> predicted, double tie = 0.02);

// The excess of the measured time of the run predicted fastest over that of the fastest run, as a fraction.
double regret(std::span<const double> measured, std::span<const double> predicted);

}  // namespace weft
