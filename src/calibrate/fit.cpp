#include "calibrate/fit.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

double rho(double error) {
  const double u = error / kScale;
  return std::sqrt(1 + u * u) - 1;
}

// A point with the rows' errors there, so that a step along one constant visits only the rows that depend on it.
class Search {
 public:
  explicit Search(const FitProblem& problem) : problem_(problem), x_(problem.slopes.size(), 0), error_(problem.error) {}

  // The change of the loss when constant c is set to `value`.
  double change(std::size_t c, double value) const {
    const double by = value - x_[c];
    double sum = prior(c, value) - prior(c, x_[c]);
    for (const FitProblem::Slope& each : problem_.slopes[c])
      sum += problem_.weight[each.row] * (rho(error_[each.row] + each.slope * by) - rho(error_[each.row]));
    return sum;
  }
  void move(std::size_t c, double value) {
    for (const FitProblem::Slope& each : problem_.slopes[c]) error_[each.row] += each.slope * (value - x_[c]);
    x_[c] = value;
  }
  double within(std::size_t c, double value) const { return std::clamp(value, problem_.low[c], problem_.high[c]); }
  const std::vector<double>& x() const { return x_; }

 private:
  double prior(std::size_t c, double value) const {
    const double u = (value + problem_.from_prior[c]) / problem_.spread[c];
    return 0.5 * u * u;
  }

  const FitProblem& problem_;
  std::vector<double> x_, error_;
};

constexpr double kFirstStep = 0.1, kLastStep = 1e-4;
constexpr double kGain = 1e-9;  // a smaller gain counts as none, so that rounding does not prolong the search
constexpr int kMostRounds = 2000;

}  // namespace

double FitProblem::loss(const std::vector<double>& x) const {
  std::vector<double> errors = error;
  double sum = 0;
  for (std::size_t c = 0; c < slopes.size(); ++c) {
    const double u = (x[c] + from_prior[c]) / spread[c];
    sum += 0.5 * u * u;
    for (const Slope& each : slopes[c]) errors[each.row] += each.slope * x[c];
  }
  for (std::size_t r = 0; r < errors.size(); ++r) sum += weight[r] * rho(errors[r]);
  return sum;
}

std::vector<double> pattern_search(const FitProblem& problem) {
  Search search(problem);
  const std::size_t constants = problem.slopes.size();
  std::vector<double> step(constants, kFirstStep);
  for (int round = 0; round < kMostRounds; ++round) {
    const std::vector<double> before = search.x();
    bool moved = false;
    for (std::size_t c = 0; c < constants; ++c) {
      for (const double direction : {1.0, -1.0}) {
        const double value = search.within(c, search.x()[c] + direction * step[c]);
        if (search.change(c, value) >= -kGain) continue;
        search.move(c, value);
        step[c] = std::min(step[c] * 2, kFirstStep);
        moved = true;
        break;
      }
      if (search.x()[c] == before[c]) step[c] /= 2;
    }
    if (moved) {
      // Correlated constants make narrow valleys: continue in the direction of the whole round.
      const std::vector<double> here = search.x();
      double gained = 0;
      for (std::size_t c = 0; c < constants; ++c) {
        const double value = search.within(c, 2 * here[c] - before[c]);
        gained += search.change(c, value);
        search.move(c, value);
      }
      if (gained >= -kGain)
        for (std::size_t c = 0; c < constants; ++c) search.move(c, here[c]);
    } else if (std::all_of(step.begin(), step.end(), [](double each) { return each < kLastStep; })) {
      break;
    }
  }
  return search.x();
}

}  // namespace weft
