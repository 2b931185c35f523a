// A hash of a sequence of integers, for maps with such keys.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

struct HashNumbers {
  template <class Numbers>
  std::size_t operator()(const Numbers& numbers) const {
    std::uint64_t hash = 0;
    for (const auto number : numbers) {
      hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

}  // namespace weft
