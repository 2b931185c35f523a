#include "base/logarithm.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

TEST(Logarithm, PowersOfTwoAreExact) {
  for (int power = -1000; power < 1000; ++power) {
    EXPECT_EQ(exp2_of(power), std::ldexp(1.0, power));
    EXPECT_EQ(log2_of(std::ldexp(1.0, power)), power);
  }
}

TEST(Logarithm, AgreesWithTheLibraryOfTheSystem) {
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    EXPECT_NEAR(log2_of(x), std::log2(x), 1e-13 * std::max(1.0, std::abs(std::log2(x))));
    EXPECT_NEAR(exp2_of(log2_of(x)) / x, 1, 1e-12 * std::max(1.0, std::abs(std::log2(x))));
  }
  for (double y = -20; y < 20; y += 0.0173) EXPECT_NEAR(exp2_of(y) / std::exp2(y), 1, 1e-13);
  EXPECT_EQ(exp2_of(-2000), 0);
  EXPECT_NEAR(log2_of(5e-324), -1074, 1e-9);
}

}  // namespace
}  // namespace weft
