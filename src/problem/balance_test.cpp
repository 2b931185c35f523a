#include "problem/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/random.h"

namespace weft {
namespace {

// The least load of the fullest stage, by trying every division.
double least(const StageLoads& loads, std::int64_t stages, std::vector<std::int64_t> counts = {}) {
  const auto used = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const auto left = static_cast<std::int64_t>(loads.layers.size()) - used;
  const std::int64_t after = stages - static_cast<std::int64_t>(counts.size());
  if (after == 1) {
    counts.push_back(left);
    return fullest_stage(loads, counts);
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t count = 1; count <= left - after + 1; ++count) {
    counts.push_back(count);
    best = std::min(best, least(loads, stages, counts));
    counts.pop_back();
  }
  return best;
}

TEST(Balance, GivesFewerLayersToTheStageOfAHeadThatIsWorthTwo) {
  // 32 layers and a head of 2: 34 in 4 stages, at most 9 in each: 8 + 9 + 8 + (7 + 2).
  const StageLoads loads{std::vector<double>(32, 1.0), 0, 2};
  EXPECT_EQ(balanced_stages(loads, 4), (std::vector<std::int64_t>{8, 9, 8, 7}));
  EXPECT_EQ(balanced_stages({std::vector<double>(32, 1.0), 0, 0}, 4), (std::vector<std::int64_t>{8, 8, 8, 8}));
  EXPECT_TRUE(balanced_stages(loads, 33).empty());
}

TEST(Balance, IsTheBestOfAllDivisions) {
  Rng rng(7);
  for (int i = 0; i < 300; ++i) {
    StageLoads loads;
    for (std::uint64_t layer = 0, layers = 2 + rng.below(9); layer < layers; ++layer)
      loads.layers.push_back(static_cast<double>(1 + rng.below(20)));
    loads.first = static_cast<double>(rng.below(30));
    loads.last = static_cast<double>(rng.below(30));
    const auto stages = static_cast<std::int64_t>(1 + rng.below(loads.layers.size()));
    const std::vector<std::int64_t> counts = balanced_stages(loads, stages);
    ASSERT_EQ(static_cast<std::int64_t>(counts.size()), stages);
    EXPECT_GE(*std::min_element(counts.begin(), counts.end()), 1);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), loads.layers.size());
    EXPECT_NEAR(fullest_stage(loads, counts), least(loads, stages), 1e-6);
  }
}

}  // namespace
}  // namespace weft
