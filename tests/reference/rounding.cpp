#include "reference/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::reference {
namespace {

struct Format {
  int fraction;  // bits of the significand after the point
  int exponent;  // the least of normal numbers
  double largest;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Format kFp32{23, -126, kInfinity}, kTf32{10, -126, kInfinity}, kBf16{7, -126, kInfinity},
    kFp16{10, -14, kInfinity}, kFp8{3, -6, 448}, kFp4{1, 0, 6};

double rounded(double value, const Format& format) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // value = f · 2^exponent, f in [½, 1)
  const int unit = std::max(exponent - 1, format.exponent) - format.fraction;
  const double near = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::clamp(near, -format.largest, format.largest);
}

}  // namespace

double rounded(double value, DType to) {
  switch (to) {
    case DType::F32:
      return rounded(value, kFp32);
    case DType::BF16:
      return rounded(value, kBf16);
    case DType::F16:
      return rounded(value, kFp16);
    case DType::F8:
      return rounded(value, kFp8);
    case DType::F4:
      return rounded(value, kFp4);
    default:
      return value;
  }
}

double rounded(double value, Arithmetic to) {
  constexpr Format formats[] = {kFp32, kTf32, kFp16, kBf16, kFp8, kFp4};
  return rounded(value, formats[static_cast<std::size_t>(to)]);
}

}  // namespace weft::reference
