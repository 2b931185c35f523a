// Flows over links finish at the same times as in SimGrid.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "simulate/engine.h"
#include "simulate/simgrid_oracle.h"
#include "simulate/test_workload.h"

namespace weft {
namespace {

using testing::SimGridFlow;

void compare(std::uint64_t seed, std::int64_t links, std::int64_t flows, bool together) {
  Rng rng(seed);
  testing::Maker maker;
  std::vector<double> bandwidths;
  for (std::int64_t i = 0; i < links; ++i) {
    const std::int64_t capacity = rng.between(1, 1000) * 100'000'000;
    maker.link(capacity);
    bandwidths.push_back(static_cast<double>(capacity));
  }
  std::vector<SimGridFlow> theirs;
  for (std::int64_t i = 0; i < flows; ++i) {
    const std::int64_t start = together ? 0 : rng.between(0, 1'000'000'000'000);
    const std::int64_t bytes = rng.between(1'000'000, 10'000'000'000);
    SimGridFlow flow{static_cast<double>(start) * 1e-12, static_cast<std::uint64_t>(bytes), {}};
    std::vector<FlowLinkId> path;
    for (std::uint64_t n = 1 + rng.below(4); n > 0; --n) {
      const auto link = static_cast<std::uint32_t>(rng.below(static_cast<std::uint64_t>(links)));
      if (std::find(flow.links.begin(), flow.links.end(), link) != flow.links.end()) continue;
      flow.links.push_back(link);
      path.emplace_back(link);
    }
    theirs.push_back(flow);
    maker.task(maker.agent(), maker.transfer(bytes, path, start));
  }
  const std::vector<double> expected = testing::simgrid_finish_times(bandwidths, theirs).finish;
  const Run run = simulate(maker.workload).value();
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const double ours = static_cast<double>(run.agents[AgentId(i)].end) * 1e-12;
    EXPECT_NEAR(ours / expected[i], 1.0, 1e-6) << "seed " << seed << ", flow " << i;
  }
}

TEST(SimGrid, AgreesOnFlowsStartedTogether) {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    Rng rng(seed);
    compare(seed, rng.between(1, 30), rng.between(1, 60), true);
  }
}

TEST(SimGrid, AgreesOnFlowsThatComeAndGo) {
  for (std::uint64_t seed = 101; seed <= 125; ++seed) {
    Rng rng(seed);
    compare(seed, rng.between(1, 30), rng.between(1, 60), false);
  }
}

TEST(SimGrid, AgreesOnALargerNetwork) { compare(7, 100, 500, false); }

}  // namespace
}  // namespace weft
