// The order of tokens under causal context parallelism. With contiguous parts the device that holds the last tokens of
// a sample has the most work, as they attend to the most keys. In zigzag order over n parts, part i holds the i-th and
// the i-th last of 2n chunks, so that all parts have the same work.
//
// Tensors keep the tokens in that order. Operators that depend on positions (attention's mask, rotary embeddings) have
// the attribute `zigzag=n` and look the position of a place up here; no other operator depends on the order.
#pragma once

#include <cstdint>

namespace weft {

// The position of the token at `place` among `size` tokens in zigzag order over `parts` (2·parts divides size); with
// parts = 1 tokens are in sequence order.
inline std::int64_t token_position(std::int64_t place, std::int64_t size, std::int64_t parts) {
  if (parts <= 1) return place;
  const std::int64_t chunk = size / (2 * parts), at = place / chunk, part = at / 2;
  return (at % 2 == 0 ? part : 2 * parts - 1 - part) * chunk + place % chunk;
}

}  // namespace weft
