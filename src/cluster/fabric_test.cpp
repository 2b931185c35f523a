#include "cluster/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace weft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Figure<Seconds> kHop{{1e-6}, "test"};

std::vector<std::uint32_t> path(const Fabric& fabric, int a, int rail_a, int b, int rail_b) {
  std::vector<LinkId> links;
  fabric.append_path(a, rail_a, b, rail_b, LinkId(0), links);
  std::vector<std::uint32_t> ids;
  for (LinkId link : links) ids.push_back(link.index());
  return ids;
}

TEST(Fabric, ASingleSwitchHasNoLinksOfItsOwn) {
  const Fabric fabric(TreeFabric{}, {{4, {{10e9}}}});
  EXPECT_EQ(fabric.link_count(), 0);
  EXPECT_THAT(path(fabric, 0, 0, 3, 0), IsEmpty());
  EXPECT_DOUBLE_EQ(fabric.bisection().value, 20e9);  // half of 4 × 10
}

TEST(Fabric, AFatTreeClimbsOnlyAsFarAsItMust) {
  // 12 nodes of one 10 GB/s NIC; leaves of 2, pods of 6, the pods' links 3:1.
  const Fabric fabric(TreeFabric{false, {{2, 1}, {6, 3}}, kHop}, {{12, {{10e9}}}});
  EXPECT_EQ(fabric.link_count(), 2 * 6 + 2 * 2);
  EXPECT_THAT(path(fabric, 0, 0, 1, 0), IsEmpty());
  EXPECT_THAT(path(fabric, 0, 0, 2, 0), ElementsAre(0, 3));            // leaf 0 up, leaf 1 down
  EXPECT_THAT(path(fabric, 0, 0, 11, 0), ElementsAre(0, 12, 15, 11));  // and pod 0 up, pod 1 down
  EXPECT_DOUBLE_EQ(fabric.link(0).bandwidth.value, 20e9);              // 2 × 10
  EXPECT_DOUBLE_EQ(fabric.link(12).bandwidth.value, 20e9);             // 6 × 10 / 3
  EXPECT_DOUBLE_EQ(fabric.bisection().value, 20e9);                    // 12 × 10 / 3 / 2
  EXPECT_EQ(fabric.reverse(12), 13);
}

TEST(Fabric, ALastLeafWithFewerNodesHasThinnerLinks) {
  const Fabric fabric(TreeFabric{false, {{4, 2}}, kHop}, {{6, {{10e9}}}});
  EXPECT_DOUBLE_EQ(fabric.link(0).bandwidth.value, 20e9);  // 4 × 10 / 2
  EXPECT_DOUBLE_EQ(fabric.link(2).bandwidth.value, 10e9);  // 2 × 10 / 2
  ASSERT_EQ(fabric.tiers().size(), 1u);
  EXPECT_DOUBLE_EQ(fabric.tiers()[0].slowest.value, 10e9);
  EXPECT_DOUBLE_EQ(fabric.tiers()[0].fastest.value, 20e9);
}

TEST(Fabric, RailsStayApartBelowTheSpine) {
  // 4 nodes with 2 NICs, pods of 2: switches (pod, rail).
  const Fabric fabric(TreeFabric{true, {{2, 1}}, kHop}, {{4, {{10e9}, {20e9}}}});
  EXPECT_THAT(path(fabric, 0, 1, 1, 1), IsEmpty());
  EXPECT_THAT(path(fabric, 0, 0, 2, 0), ElementsAre(0, 5));
  EXPECT_THAT(path(fabric, 0, 0, 1, 1), ElementsAre(0, 3));  // rails meet at the spine only
  EXPECT_DOUBLE_EQ(fabric.link(0).bandwidth.value, 20e9);    // rail 0: 2 × 10
  EXPECT_DOUBLE_EQ(fabric.link(2).bandwidth.value, 40e9);    // rail 1: 2 × 20
}

TEST(Fabric, MixedNodesAddUpBelowALeaf) {
  const Fabric fabric(TreeFabric{false, {{4, 1}}, kHop}, {{2, {{10e9}}}, {6, {{1e9}, {1e9}}}});
  EXPECT_DOUBLE_EQ(fabric.link(0).bandwidth.value, 24e9);  // 2 × 10 + 2 × 2
  EXPECT_DOUBLE_EQ(fabric.link(2).bandwidth.value, 8e9);   // 4 × 2
}

TEST(Fabric, DragonflyRoutesAreMinimal) {
  // Routers of 1 node, groups of 3 routers; 9 nodes make 3 groups.
  const Fabric fabric(DragonflyFabric{1, 3, {{5e9}, "test"}, {{7e9}, "test"}, kHop}, {{9, {{10e9}}}});
  EXPECT_EQ(fabric.link_count(), 3 * 3 * 2 + 3 * 2);
  EXPECT_THAT(path(fabric, 0, 0, 0, 0), IsEmpty());
  EXPECT_EQ(path(fabric, 0, 0, 1, 0).size(), 1u);  // one local link
  for (int a = 0; a < 9; ++a)
    for (int b = 0; b < 9; ++b) {
      EXPECT_LE(path(fabric, a, 0, b, 0).size(), 3u);  // local, global, local
      EXPECT_EQ(path(fabric, a, 0, b, 0).size(), path(fabric, b, 0, a, 0).size());
    }
  for (int link = 0; link < fabric.link_count(); ++link) {
    EXPECT_NE(fabric.reverse(link), link);
    EXPECT_EQ(fabric.reverse(fabric.reverse(link)), link);
    EXPECT_EQ(fabric.link(link).bandwidth.value, link < 18 ? 5e9 : 7e9);
  }
}

RC_GTEST_PROP(FabricLaw, TheWayBackIsTheWayThereReversed, ()) {
  FabricSpec spec;
  if (*rc::gen::arbitrary<bool>()) {
    spec = DragonflyFabric{*rc::gen::inRange(1, 5), *rc::gen::inRange(1, 6), {{5e9}, "t"}, {{7e9}, "t"}, kHop};
  } else {
    const int leaf = *rc::gen::inRange(1, 6);
    spec = TreeFabric{*rc::gen::arbitrary<bool>(), {{leaf, 1}, {leaf * *rc::gen::inRange(2, 5), 2}}, kHop};
  }
  const int nodes = *rc::gen::inRange(1, 80);
  const Fabric fabric(spec, {{nodes, {{1e9}, {1e9}, {1e9}}}});
  const int a = *rc::gen::inRange(0, nodes), b = *rc::gen::inRange(0, nodes);
  const int rail_a = *rc::gen::inRange(0, 3), rail_b = *rc::gen::inRange(0, 3);
  std::vector<std::uint32_t> there = path(fabric, a, rail_a, b, rail_b), back = path(fabric, b, rail_b, a, rail_a);
  RC_ASSERT(there.size() == back.size());
  for (std::size_t i = 0; i < there.size(); ++i) {
    RC_ASSERT(fabric.reverse(there[i]) == back[back.size() - 1 - i]);
    RC_ASSERT(there[i] < fabric.link_count());
  }
}

}  // namespace
}  // namespace weft
