#include "validate/score.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Score, MeansAndMedians) {
  EXPECT_DOUBLE_EQ(mean(std::vector<double>{1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(median({6, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({6, 1, 2, 4}), 3);  // (2 + 4) / 2
  EXPECT_DOUBLE_EQ(median({}), 0);
}

TEST(Score, TauCountsPairsThatAreMoreThanATieApart) {
  // 1 and 1.01 are one within 2 %. Of (1, 2), (1, 3), (1.01, 2), (1.01, 3), (2, 3) only the last is predicted the other
  // way round: (4 − 1) / 5.
  const std::vector<double> measured = {1, 1.01, 2, 3}, predicted = {5, 4, 9, 8};
  const Concordance order = concordance(measured, predicted);
  EXPECT_EQ(order.same, 4);
  EXPECT_EQ(order.other, 1);
  EXPECT_DOUBLE_EQ(order.tau(), 0.6);
  EXPECT_DOUBLE_EQ(Concordance{}.tau(), 1);
}

TEST(Score, RegretIsWhatTheChosenRunTakesMore) {
  EXPECT_DOUBLE_EQ(regret(std::vector<double>{10, 12, 11}, std::vector<double>{3, 1, 2}), 0.2);  // 12 / 10 − 1
}

}  // namespace
}  // namespace weft
