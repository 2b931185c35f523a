#include "simulate/fair_shares.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace weft {
namespace {

struct Flow {
  std::vector<LinkUse> loads;
  std::int64_t cap = 0, link_limit = 0;
  bool present = false;
};

struct Network {
  IdVec<FlowLinkId, FlowLink> links;
  std::vector<Flow> flows;
};

Network random_network(Rng& rng, std::int64_t most_capacity) {
  Network network;
  const std::int64_t links = rng.between(1, 12);
  for (std::int64_t i = 0; i < links; ++i) network.links.push_back({.capacity = rng.between(1, most_capacity)});
  network.flows.resize(static_cast<std::size_t>(rng.between(1, 40)));
  const bool weighted = rng.below(2) == 0;
  for (Flow& flow : network.flows) {
    Work work;
    for (const FlowLinkId link : network.links.ids())
      if (rng.below(3) == 0) work.links.push_back({link, weighted ? rng.between(1, 4 * kOne) : kOne});
    if (work.links.empty()) work.links.push_back({FlowLinkId(0), kOne});
    flow.link_limit = isolated_rate(work, network.links);
    flow.cap = rng.below(2) == 0 ? flow.link_limit : rng.between(1, flow.link_limit);
    flow.loads = std::move(work.links);
  }
  return network;
}

// A rate is max-min fair if it cannot be raised without lowering one that is no greater: every flow has its cap, or a
// link that is full (the rest is less than one byte per second for each of its flows) and on which no flow has more.
// The fair rates are unique, so this needs no second solver.
void expect_fair(const Network& network, const FairShares& shares) {
  IdVec<FlowLinkId, Wide> left(network.links.size());
  IdVec<FlowLinkId, std::int64_t> weight(network.links.size()), highest(network.links.size());
  for (const FlowLinkId id : network.links.ids()) left[id] = Wide{network.links[id].capacity} * kOne;
  for (std::uint32_t i = 0; i < network.flows.size(); ++i) {
    if (!network.flows[i].present) continue;
    RC_ASSERT(shares.rate(i) >= 1);
    RC_ASSERT(shares.rate(i) <= network.flows[i].cap);
    for (const LinkUse& load : network.flows[i].loads) {
      left[load.link] -= Wide{load.coefficient} * shares.rate(i);
      weight[load.link] += load.coefficient;
      highest[load.link] = std::max(highest[load.link], shares.rate(i));
    }
  }
  for (const FlowLinkId id : network.links.ids()) RC_ASSERT(left[id] >= 0 || highest[id] == 1);
  for (std::uint32_t i = 0; i < network.flows.size(); ++i) {
    const Flow& flow = network.flows[i];
    if (!flow.present) continue;
    const bool bottleneck = std::any_of(flow.loads.begin(), flow.loads.end(), [&](const LinkUse& load) {
      return left[load.link] < weight[load.link] && highest[load.link] == shares.rate(i);
    });
    RC_ASSERT(shares.rate(i) == flow.cap || bottleneck);
  }
}

void add(FairShares& shares, Network& network, std::uint32_t i) {
  Flow& flow = network.flows[i];
  flow.present = true;
  shares.add(i, flow.loads, flow.cap, flow.link_limit);
}

// After any sequence of additions, removals and changes of caps, rates are fair, and the same as if all flows were
// added at once in another order.
void play_changes(std::uint64_t seed, std::int64_t most_capacity, bool check_fair) {
  Rng rng(seed);
  Network network = random_network(rng, most_capacity);
  FairShares shares(network.links, network.flows.size());
  for (int round = 0; round < 12; ++round) {
    for (std::uint64_t changes = rng.below(6); changes > 0; --changes) {
      const auto i = static_cast<std::uint32_t>(rng.below(network.flows.size()));
      Flow& flow = network.flows[i];
      if (!flow.present) {
        add(shares, network, i);
      } else if (rng.below(3) == 0) {
        flow.cap = rng.between(1, flow.link_limit);
        shares.set_cap(i, flow.cap);
      } else {
        flow.present = false;
        shares.remove(i);
      }
    }
    shares.update();
    if (check_fair) expect_fair(network, shares);
    FairShares fresh(network.links, network.flows.size());
    for (std::size_t k = network.flows.size(); k-- > 0;)
      if (network.flows[k].present) add(fresh, network, static_cast<std::uint32_t>(k));
    fresh.update();
    for (std::uint32_t i = 0; i < network.flows.size(); ++i)
      if (network.flows[i].present) RC_ASSERT(shares.rate(i) == fresh.rate(i));
  }
}

RC_GTEST_PROP(FairShares, AreMaxMinFairWhateverCameBefore, (std::uint64_t seed)) {
  play_changes(seed, 1'000'000'000'000, true);
}

// At rates of a few bytes per second, every rounding matters.
RC_GTEST_PROP(FairShares, AreTheSameInAnyOrderToTheLastByte, (std::uint64_t seed)) { play_changes(seed, 100, true); }

// Capacities beyond 64 bits once scaled.
RC_GTEST_PROP(FairShares, HoldForVeryWideLinks, (std::uint64_t seed)) {
  play_changes(seed, std::numeric_limits<std::int64_t>::max() / 2, true);
}

// 10 over 3 flows is 3 each; the second link has 20 − 3 for its other flow, whose own cap is 15.
TEST(FairShares, RoundDown) {
  IdVec<FlowLinkId, FlowLink> links;
  const FlowLinkId x = links.push_back({.capacity = 10}), y = links.push_back({.capacity = 20});
  const std::vector<LinkUse> on_x{{x, kOne}}, on_y{{y, kOne}}, on_both{{x, kOne}, {y, kOne}};
  FairShares shares(links, 4);
  shares.add(0, on_x, 10, 10);
  shares.add(1, on_x, 10, 10);
  shares.add(2, on_both, 10, 10);
  shares.add(3, on_y, 15, 20);
  EXPECT_EQ(shares.update().size(), 4u);
  EXPECT_EQ(shares.rate(0), 3);
  EXPECT_EQ(shares.rate(1), 3);
  EXPECT_EQ(shares.rate(2), 3);
  EXPECT_EQ(shares.rate(3), 15);
}

// Removing a flow does not affect slower ones: only flows that can change are reported.
TEST(FairShares, ReportOnlyWhatChanges) {
  IdVec<FlowLinkId, FlowLink> links;
  const FlowLinkId x = links.push_back({.capacity = 10}), y = links.push_back({.capacity = 100});
  const std::vector<LinkUse> on_x{{x, kOne}}, on_y{{y, kOne}}, on_both{{x, kOne}, {y, kOne}};
  FairShares shares(links, 4);
  shares.add(0, on_x, 10, 10);
  shares.add(1, on_both, 10, 10);
  shares.add(2, on_y, 100, 100);
  shares.add(3, on_y, 100, 100);
  shares.update();
  EXPECT_EQ(shares.rate(3), 47);  // (100 − 5) / 2
  shares.remove(3);
  const auto changed = shares.update();
  EXPECT_EQ(std::vector<std::uint32_t>(changed.begin(), changed.end()), std::vector<std::uint32_t>{2});
  EXPECT_EQ(shares.rate(2), 95);
}

}  // namespace
}  // namespace weft
