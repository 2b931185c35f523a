// The engine's arithmetic: exact, in integers.
//
// The remaining part of a communication is counted in 10⁻¹² bytes, so that bytes per second × picoseconds is a whole
// number; that of a computation in 1/kOne picoseconds. Both need more than 64 bits.
#pragma once

#include <limits>

#include "simulate/workload.h"

namespace weft {

using Wide = __int128;

inline constexpr Wide kPerByte = 1'000'000'000'000;

// Later than every possible time.
inline constexpr Picoseconds kNever = Picoseconds{3} << 61;

// ⌈amount / rate⌉, at most slightly beyond kTimeLimit, so that adding a valid time does not overflow.
inline Picoseconds time_at_rate(Wide amount, std::int64_t rate) {
  if (amount <= 0) return 0;
  const auto up = static_cast<unsigned __int128>(amount) + static_cast<std::uint64_t>(rate - 1);
  // One hardware division if the amount fits 64 bits.
  if ((up >> 64) == 0) {
    const std::uint64_t time = static_cast<std::uint64_t>(up) / static_cast<std::uint64_t>(rate);
    return time <= static_cast<std::uint64_t>(kTimeLimit) ? static_cast<Picoseconds>(time) : kTimeLimit + 1;
  }
  const unsigned __int128 time = up / static_cast<std::uint64_t>(rate);
  return time <= static_cast<unsigned __int128>(kTimeLimit) ? static_cast<Picoseconds>(time) : kTimeLimit + 1;
}

}  // namespace weft
