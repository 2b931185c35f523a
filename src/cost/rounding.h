// Rounding of durations and shares to integers, all in this place.
#pragma once

#include <algorithm>
#include <cstdint>

#include "simulate/workload.h"

namespace weft {

// To the nearest picosecond; at most 2^62 ps, 53 days.
inline Picoseconds picoseconds(double seconds) {
  const double exact = seconds * 1e12 + 0.5;
  constexpr double most = 4611686018427387904.0;
  return exact >= most ? static_cast<Picoseconds>(most) : static_cast<Picoseconds>(std::max(exact, 0.0));
}

// A share of a device in units of 1/kOne, clamped to [0, 1].
inline std::int32_t share(double part) {
  return static_cast<std::int32_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(kOne) + 0.5);
}

// ⌈a / b⌉ of positive numbers; a quotient in doubles must be below 2^63.
inline double ceil_ratio(double a, double b) {
  const auto down = static_cast<double>(static_cast<std::int64_t>(a / b));
  return down * b < a ? down + 1 : down;
}

}  // namespace weft
