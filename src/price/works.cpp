#include "price/works.h"

namespace weft {

WorkId Works::compute(const ComputeCost& cost) {
  const auto [found, added] =
      ids_.try_emplace(Key{-1, cost.waves, cost.time, cost.sm_share, cost.memory_share}, WorkId(all_.size()));
  if (added) {
    keys_.push_back(found->first);
    all_.push_back(
        {.fixed = cost.time, .sm_share = cost.sm_share, .memory_share = cost.memory_share, .waves = cost.waves});
  }
  return found->second;
}

void Works::shrink(std::size_t count) {
  for (; keys_.size() > count; keys_.pop_back()) ids_.erase(keys_.back());
  all_.resize(count);
}

}  // namespace weft
