// Layers of pipeline stages such that the slowest stage takes as little as it can.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// What stages are made of, in seconds or any other unit: every layer, with what runs in its stage beside it, and what the
// first and the last stage have besides layers (embedding; head and loss).
struct StageLoads {
  std::vector<double> layers;
  double first = 0, last = 0;
};

// The layers of every stage, at least one each: of the divisions with the least load of the fullest stage one whose
// other stages are near the mean of what is left. Empty for more stages than layers. Cost: some 60 passes over layers.
std::vector<std::int64_t> balanced_stages(const StageLoads& loads, std::int64_t stages);

// The load of the fullest stage.
double fullest_stage(const StageLoads& loads, const std::vector<std::int64_t>& stages);

}  // namespace weft
