// The order of tokens under causal context parallelism. A device that holds the last tokens of a sample would have all
// the work: they see the most. In zigzag order over n parts, part i holds the i-th and the i-th last of 2n chunks, so
// that every part sees as much as any other.
//
// Tensors keep the tokens in that order; operators that know positions (attention's mask, rotary embeddings) have the
// attribute `zigzag=n` and ask here which position a place stands for. Everything else does not care.
#pragma once

#include <cstdint>

namespace weft {

// The position of the token at a place, of `size` tokens in zigzag order over `parts` (2·parts divides size); 1: in
// their own order.
inline std::int64_t token_position(std::int64_t place, std::int64_t size, std::int64_t parts) {
  if (parts <= 1) return place;
  const std::int64_t chunk = size / (2 * parts), at = place / chunk, part = at / 2;
  return (at % 2 == 0 ? part : 2 * parts - 1 - part) * chunk + place % chunk;
}

}  // namespace weft
