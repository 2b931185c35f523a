#include "calibrate/fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

constexpr double kFree = 1e6;  // a spread so wide that the prior has no weight

FitProblem problem_of(std::vector<double> errors, std::vector<std::vector<FitProblem::Slope>> slopes, double spread) {
  const std::size_t constants = slopes.size();
  FitProblem problem{std::move(errors), {}, std::move(slopes), {}, {}, {}, {}};
  problem.weight.assign(problem.error.size(), 1);
  problem.low.assign(constants, -1);
  problem.high.assign(constants, 1);
  problem.from_prior.assign(constants, 0);
  problem.spread.assign(constants, spread);
  return problem;
}

TEST(PatternSearch, TakesAConstantToWhereItsRowsHaveNoError) {
  // Time goes with the constant to the power −1; rows are predicted 20 % too slow: e^0.182 = 1.2.
  const double slow = std::log(1.2);
  const FitProblem problem = problem_of({slow, slow}, {{{0, -1}, {1, -1}}}, kFree);
  EXPECT_NEAR(pattern_search(problem)[0], slow, 1e-3);
}

TEST(PatternSearch, TellsConstantsApartByTheRowsThatFeelOneAlone) {
  // Row 0 depends on both, row 1 on the first alone: x0 = 0.1, so x1 = 0.3 − 0.1.
  const FitProblem problem = problem_of({-0.3, -0.1}, {{{0, 1}, {1, 1}}, {{0, 1}}}, kFree);
  const std::vector<double> x = pattern_search(problem);
  EXPECT_NEAR(x[0], 0.1, 2e-3);
  EXPECT_NEAR(x[1], 0.2, 2e-3);
}

TEST(PatternSearch, LetsAnOutlierPullLittle) {
  // Nine rows are fitted by 0, one by 1. Least squares would give the mean, 0.1; here x stays within half a scale of 0.
  std::vector<double> errors(10, 0);
  errors[9] = -1;
  std::vector<FitProblem::Slope> slopes;
  for (std::size_t r = 0; r < errors.size(); ++r) slopes.push_back({r, 1});
  EXPECT_LT(pattern_search(problem_of(errors, {slopes}, kFree))[0], kScale / 2);
}

TEST(PatternSearch, PullsToThePriorWhereRowsSayLittle) {
  // One row is fitted by 0.1, which is two scales off: a prior with spread 0.02 outweighs it, one with 0.5 does not.
  const std::vector<double> tight = pattern_search(problem_of({-0.1}, {{{0, 1}}}, 0.02));
  const std::vector<double> wide = pattern_search(problem_of({-0.1}, {{{0, 1}}}, 0.5));
  EXPECT_LT(tight[0], 0.025);
  EXPECT_GT(wide[0], 0.09);
}

TEST(PatternSearch, StaysWithinBounds) {
  FitProblem problem = problem_of({-0.5}, {{{0, 1}}}, kFree);
  problem.high[0] = 0.2;
  EXPECT_DOUBLE_EQ(pattern_search(problem)[0], 0.2);
}

TEST(PatternSearch, FollowsTheValleyOfConstantsThatTrade) {
  // Both rows depend on x0 − x1 strongly and on x0 + x1 a little: a narrow valley along the diagonal, 0.4 long.
  const FitProblem problem = problem_of({0, -0.08}, {{{0, 1}, {1, 0.1}}, {{0, -1}, {1, 0.1}}}, kFree);
  const std::vector<double> x = pattern_search(problem);
  EXPECT_NEAR(x[0], 0.4, 0.02);
  EXPECT_NEAR(x[1], 0.4, 0.02);
  EXPECT_LT(problem.loss(x), 1e-3);
}

}  // namespace
}  // namespace weft
