#include "base/logarithm.h"

#include <bit>
#include <cstdint>

#include "base/check.h"

namespace weft {
namespace {

constexpr double kLn2 = 0.693147180559945309417;

}  // namespace

double log2_of(double positive) {
  WEFT_CHECK(positive > 0 && positive <= 1.7976931348623157e308, "logarithm of {}", positive);
  int exponent = 0;
  if (positive < 2.2250738585072014e-308) {  // subnormal
    positive *= 0x1p64;
    exponent = -64;
  }
  auto bits = std::bit_cast<std::uint64_t>(positive);
  exponent += static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffULL) | (std::uint64_t{1023} << 52);
  double m = std::bit_cast<double>(bits);  // in [1, 2)
  if (m > 1.4142135623730951) {
    m /= 2;
    ++exponent;
  }
  // ln m = 2·artanh(z), z = (m − 1)/(m + 1), |z| < 0.172: z^25/25 is below 1e-20.
  const double z = (m - 1) / (m + 1), square = z * z;
  double sum = 0;
  for (int power = 23; power >= 1; power -= 2) sum = sum * square + 1.0 / power;
  return exponent + 2 * z * sum / kLn2;
}

double exp2_of(double power) {
  if (power < -1000) return 0;
  if (power >= 1000) power = 1000;
  int whole = static_cast<int>(power);
  if (whole > power) --whole;
  if (power - whole > 0.5) ++whole;
  const double x = (power - whole) * kLn2;  // |x| ≤ 0.347: x^16/16! is below 1e-20
  double sum = 1;
  for (int n = 15; n >= 1; --n) sum = 1 + sum * x / n;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(whole + 1023) << 52);
}

}  // namespace weft
