// The makers behind make_schedule, inside the folder. Sizes are checked already; each gives routes and actions.
#pragma once

#include "program/schedule.h"

namespace weft {

// One chunk per rank: gpipe, 1f1b, zb-h1, zb-h2. They differ in two numbers per rank: how many forwards go before the
// first backward, and by how many micro-batches weight gradients lag behind input gradients (kFused: not split).
inline constexpr std::int32_t kFused = -1;
struct Rhythm {
  std::int32_t warm_up;
  std::int32_t lag;
};
std::vector<Action> one_chunk(std::int32_t micro_batches, Rhythm rhythm);

std::vector<Action> interleaved(std::int32_t ranks, std::int32_t chunks, std::int32_t micro_batches, std::int32_t rank);
std::vector<Action> zb_v(std::int32_t ranks, std::int32_t micro_batches, std::int32_t rank);

// DualPipe as seen from a rank at `depth` steps from its nearer end of a pipeline whose half has `half` ranks: chunk 0
// is the nearer direction's. Micro-batches are counted per direction.
std::vector<Action> dual_pipe(std::int32_t half, std::int32_t micro_batches, std::int32_t depth);

}  // namespace weft
