// A splittable, seeded generator: the same seed gives the same numbers on every machine, and a child made by
// `split` is independent of how many numbers its parent draws. (SplitMix64: Steele, Lea, Flood, OOPSLA'14.)
// No std::*_distribution: their results differ between standard libraries.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace weft {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : seed_(mix(seed + kGolden)), state_(seed_) {}

  std::uint64_t next() { return mix(state_ += kGolden); }

  // Uniform in [0, bound), without modulo bias.
  std::uint64_t below(std::uint64_t bound) {
    WEFT_CHECK(bound > 0);
    const std::uint64_t reject_below = (0 - bound) % bound;
    for (;;) {
      const std::uint64_t draw = next();
      if (draw >= reject_below) return draw % bound;
    }
  }
  // Uniform in [low, high], both included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }
  // Uniform in [0, 1), 53 random bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  // An independent generator for `stream`; it depends on the seed and the stream only, not on the numbers drawn so far.
  Rng split(std::uint64_t stream) const { return Rng(mix(seed_ ^ mix(stream + kGolden))); }

 private:
  static constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t seed_, state_;
};

}  // namespace weft
