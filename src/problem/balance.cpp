#include "problem/balance.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace weft {
namespace {

// The fewest stages that hold the layers from each one on, none with more than `most`; the last has `loads.last` too.
std::vector<std::int64_t> fewest_from(const StageLoads& loads, double most) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 2;
  const std::size_t layers = loads.layers.size();
  std::vector<std::int64_t> fewest(layers + 1, 0);
  double held = loads.last;
  std::int64_t stages = 1;
  for (std::size_t layer = layers; layer-- > 0;) {
    if (held + loads.layers[layer] > most) ++stages, held = 0;
    held += loads.layers[layer];
    fewest[layer] = held > most ? kNever : stages;
    if (fewest[layer] == kNever) stages = kNever;
  }
  return fewest;
}

bool possible(const StageLoads& loads, std::int64_t stages, double most) {
  double held = loads.first;
  std::int64_t used = 1;
  for (std::size_t layer = 0; layer < loads.layers.size(); ++layer) {
    if (held + loads.layers[layer] > most && held > 0) ++used, held = 0;
    held += loads.layers[layer];
    if (held > most) return false;
  }
  if (held + loads.last > most) ++used;
  return used <= stages && loads.last + loads.layers.back() <= most && loads.first + loads.layers.front() <= most;
}

}  // namespace

double fullest_stage(const StageLoads& loads, const std::vector<std::int64_t>& stages) {
  double most = 0;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    double held = (stage == 0 ? loads.first : 0) + (stage + 1 == stages.size() ? loads.last : 0);
    for (std::int64_t i = 0; i < stages[stage]; ++i) held += loads.layers[layer++];
    most = std::max(most, held);
  }
  return most;
}

std::vector<std::int64_t> balanced_stages(const StageLoads& loads, std::int64_t stages) {
  const auto layers = static_cast<std::int64_t>(loads.layers.size());
  if (stages < 1 || layers < stages) return {};
  const double all = std::accumulate(loads.layers.begin(), loads.layers.end(), loads.first + loads.last);
  double too_little = 0, enough = all;
  for (int i = 0; i < 50; ++i) {
    const double middle = (too_little + enough) / 2;
    (possible(loads, stages, middle) ? enough : too_little) = middle;
  }
  const double most = enough * (1 + 1e-9);
  const std::vector<std::int64_t> fewest = fewest_from(loads, most);
  std::vector<std::int64_t> counts;
  double left = all;
  std::int64_t layer = 0;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const std::int64_t after = stages - stage - 1;  // stages
    if (after == 0) {
      counts.push_back(layers - layer);
      break;
    }
    const double mean = left / static_cast<double>(after + 1);
    double held = stage == 0 ? loads.first : 0;
    std::int64_t count = 0;
    // One layer more: while the others are too many for the stages after it, or if that is nearer to the mean.
    while (layer < layers - after) {
      const double more = loads.layers[static_cast<std::size_t>(layer)];
      const bool needed = count == 0 || fewest[static_cast<std::size_t>(layer)] > after;
      const bool nearer = held + more <= most && held + more - mean < mean - held;
      if (!needed && !nearer) break;
      held += more;
      ++count, ++layer;
    }
    counts.push_back(count);
    left -= held;
  }
  return counts;
}

}  // namespace weft
