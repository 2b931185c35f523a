// How long communication takes: closed forms, published bandwidths, laws, and the engine's arithmetic.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cost/analytic.h"
#include "cost/ring_packing.h"

namespace weft {
namespace {

Cluster cluster(std::string_view spec) { return parse_cluster(spec).value(); }

std::vector<DeviceId> devices(std::int64_t count, std::int64_t stride = 1, std::int64_t first = 0) {
  std::vector<DeviceId> members;
  for (std::int64_t i = 0; i < count; ++i) members.emplace_back(static_cast<std::size_t>(first + i * stride));
  return members;
}

AnalyticCost with_nvls(bool nvls, const Tuning& tuning = built_in_tuning()) {
  SoftwareStack stack = find_stack("megatron-lm").value();
  stack.nvls.value = nvls;
  return AnalyticCost(stack, tuning);
}

double seconds(const CostModel& model, const Communicator& group, std::int64_t bytes) {
  return static_cast<double>(isolated_time(model.communicate({.communicator = &group, .bytes = bytes}))) * 1e-12;
}
// Bus bandwidth as nccl-tests prints it, in GB/s.
double bus(const CostModel& model, const Communicator& group, std::int64_t bytes) {
  const double n = static_cast<double>(group.members.size());
  const double factor = (group.traffic == Traffic::AllReduce ? 2 : 1) * (n - 1) / n;
  return factor * static_cast<double>(bytes) / seconds(model, group, bytes) / 1e9;
}

// Links at their nominal rate and no overheads: only the algorithm's volume and latency remain.
Tuning ideal() {
  std::string text = "devices: {default: {collective: 1, collective_fill: 0, nvls: 1},\n";
  for (const char* name : {"Ampere", "Hopper", "Volta", "a100-80-sxm", "h100-sxm", "v100-16", "v100-32"})
    text += fmt::format("  {}: {{collective: 1, collective_fill: 0}},\n", name);
  text += "}\nlinks: {";
  for (const char* kind : {"nvlink", "nvswitch", "xgmi", "c2c", "memory", "pcie", "socket", "nic", "fabric"})
    text += fmt::format("{}: {{efficiency: 1}}, ", kind);
  text += "}\nprotocols: {";
  for (const char* protocol : {"ll", "ll128", "simple"})
    text += fmt::format("{}: {{start: 0us, step_inside: 0us, step_between: 0us}}, ", protocol);
  text += "}\ncommunication: {tree: 1, nvls_step: 0us, transfer: 0us, host_copy: 0us, message: 0us}\n";
  return parse_tuning(text, "ideal.yaml").value();
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30, kMiB = std::int64_t{1} << 20;

TEST(Ring, TakesTwoTimesAllButOneShareOverTheLink) {
  const Tuning tuning = ideal();
  const AnalyticCost model = with_nvls(false, tuning);
  const Cluster node = cluster("dgx-h100:1");
  for (int n : {2, 3, 4, 8}) {
    const Communicator group = make_communicator(node, devices(n), Collective::AllReduce);
    // 2(n−1) steps over two NVSwitch links of 500 ns each, 450 GB/s.
    const double expected = 2.0 * (n - 1) / n * kGiB / 450e9 + 2 * (n - 1) * 1e-6;
    EXPECT_NEAR(seconds(model, group, kGiB), expected, 1e-6 * expected) << n;
    const Communicator gather = make_communicator(node, devices(n), Collective::AllGather);
    EXPECT_NEAR(seconds(model, gather, kGiB), expected / 2, 1e-6 * expected) << n;
  }
}

TEST(Ring, LeavesANodeOverTheNicItCameInByIfAMemberSharesIt) {
  // Four NICs for eight devices, two devices each; rails are joined only above the rail switches, and senders do not
  // change rails.
  const Cluster nodes = cluster("a100-800g:4");
  const auto crosses = [&](const std::vector<DeviceId>& members) {
    const Communicator group = make_communicator(nodes, members, Collective::AllReduce);
    EXPECT_EQ(group.routes[0].algorithm, Algorithm::Ring);
    return group.routes[0].narrowest[static_cast<std::size_t>(LinkKind::kFabric)].coefficient > 0;
  };
  EXPECT_FALSE(crosses(devices(32)));    // all: in by the first of a pair, out by the second
  EXPECT_FALSE(crosses(devices(4, 8)));  // one a node
  EXPECT_TRUE(crosses(devices(8, 4)));   // two a node, of different NICs
  EXPECT_TRUE(crosses(devices(16, 2)));  // four a node, of different NICs
}

TEST(AllReduce, IsChosenAsTheLibrarySeesItWithoutTheSwitchesBetweenNodes) {
  const Cluster nodes = cluster("a100-800g:4");
  const AnalyticCost model = with_nvls(false);
  const Communicator group = make_communicator(nodes, devices(8, 4), Collective::AllReduce);
  const CommunicateCost cost = model.communicate({.communicator = &group, .bytes = kGiB});
  EXPECT_EQ(group.routes[cost.route].algorithm, Algorithm::Ring);
  // The spine carries a third of 2 NICs of 25 GB/s per group and node: well below what the NICs would.
  EXPECT_LT(bus(model, group, kGiB), 0.4 * 50);
}

TEST(Ring, AcrossNodesUsesAllNics) {
  const Tuning tuning = ideal();
  const AnalyticCost model = with_nvls(false, tuning);
  const Communicator group = make_communicator(cluster("dgx-h100:4"), devices(32), Collective::AllGather);
  EXPECT_EQ(group.nodes, 4);
  // Eight NICs of 50 GB/s: 400 GB/s out of every node, less than NVSwitch's 450.
  const double limit = 31.0 / 32 * 16 * kGiB / 400e9;
  EXPECT_GT(seconds(model, group, 16 * kGiB), limit);
  EXPECT_LT(seconds(model, group, 16 * kGiB), 1.01 * limit);
}

TEST(Ring, OfOneDevicePerNodeUsesItsOwnNic) {
  const Tuning tuning = ideal();
  const AnalyticCost model = with_nvls(false, tuning);
  const Communicator group = make_communicator(cluster("dgx-h100:4"), devices(4, 8, 3), Collective::AllGather);
  EXPECT_NEAR(seconds(model, group, kGiB), 0.75 * kGiB / 50e9, 1e-4);
  for (const LinkShare& share : group.routes[0].links) EXPECT_EQ(share.coefficient, kOne);
}

TEST(Ring, CoefficientsAreTheSharesOfTheNics) {
  const Cluster two = cluster("dgx-h100:2");
  const Communicator group = make_communicator(two, devices(16), Collective::ReduceScatter);
  int nics = 0;
  for (const LinkShare& share : group.routes[0].links) {
    const LinkKind kind = two.link(share.link).kind;
    if (kind == LinkKind::kNic) {
      ++nics;
      EXPECT_EQ(share.coefficient, kOne / 8) << two.link_name(share.link);
    } else if (kind == LinkKind::kNvswitch) {
      EXPECT_GT(share.coefficient, kOne * 3 / 4) << two.link_name(share.link);
    }
  }
  EXPECT_EQ(nics, 2 * 8 * 2);  // in and out
}

// Six NVLinks of 25 GB/s per V100, all used by three rings run both ways; 22.5 of each in practice.
TEST(Ring, FillsAHybridCubeMesh) {
  const Tuning tuning = ideal();
  const Communicator group = make_communicator(cluster("dgx1-v100:1"), devices(8), Collective::AllReduce);
  EXPECT_NEAR(bus(with_nvls(false, tuning), group, 64 * kGiB), 150, 0.1);
  EXPECT_NEAR(bus(with_nvls(false), group, kGiB), 134.5, 0.05 * 134.5);  // measured: vTrain's V100 table
  const Communicator pair = make_communicator(cluster("dgx1-v100:1"), devices(2), Collective::AllReduce);
  EXPECT_NEAR(bus(with_nvls(false), pair, kGiB), 22.55, 0.05 * 22.55);
  const Communicator four = make_communicator(cluster("dgx1-v100:1"), devices(4), Collective::AllReduce);
  EXPECT_NEAR(bus(with_nvls(false), four, kGiB), 85.4, 0.06 * 85.4);
  // The fifth is connected to the first alone: no ring, one channel of a tree.
  const Communicator five = make_communicator(cluster("dgx1-v100:1"), devices(5), Collective::AllReduce);
  EXPECT_NEAR(bus(with_nvls(false), five, kGiB), 37.2, 0.05 * 37.2);
}

TEST(RingPacking, UsesEveryLaneAtMostOnceAndEveryDeviceOnce) {
  // Eight devices, each joined to each by one lane: three rings take six of seven lanes.
  std::vector<std::vector<int>> lanes(8, std::vector<int>(8, 1));
  for (int i = 0; i < 8; ++i) lanes[i][i] = 0;
  const auto rings = pack_rings(lanes);
  EXPECT_EQ(rings.size(), 3u);
  for (const std::vector<int>& ring : rings) {
    std::vector<int> sorted = ring;
    std::sort(sorted.begin(), sorted.end());
    for (int i = 0; i < 8; ++i) EXPECT_EQ(sorted[i], i);
    for (int i = 0; i < 8; ++i) EXPECT_GE(--lanes[ring[i]][ring[(i + 1) % 8]] + lanes[ring[(i + 1) % 8]][ring[i]], 0);
  }
  EXPECT_TRUE(pack_rings({{0, 1, 0}, {1, 0, 1}, {0, 1, 0}}).empty());  // three devices in a line have no ring
}

// Anchors, within 5 %.
TEST(Anchors, EightH100AllReduce) {
  const Communicator group = make_communicator(cluster("dgx-h100:1"), devices(8), Collective::AllReduce);
  EXPECT_NEAR(bus(with_nvls(true), group, 4 * kGiB), 480, 0.05 * 480);
  EXPECT_NEAR(bus(with_nvls(false), group, 4 * kGiB), 370, 0.05 * 370);
  const AnalyticCost model = with_nvls(true);
  EXPECT_EQ(group.routes[model.communicate({&group, 4 * kGiB}).route].algorithm, Algorithm::Nvls);
}

TEST(Anchors, ANicOf400GbCarries46To48GB) {
  const Cluster two = cluster("dgx-h100:2");
  const Communicator group = make_communicator(two, devices(2, 8), Collective::AllGather);
  const double rate = bus(with_nvls(false), group, 4 * kGiB);
  EXPECT_GT(rate, 46);
  EXPECT_LT(rate, 48);
  const Communicator transfer = make_transfer(two, DeviceId(0), DeviceId(8));
  EXPECT_NEAR(4.0 * kGiB / seconds(with_nvls(false), transfer, 4 * kGiB) / 1e9, 47, 1);
}

// vTrain's table of A100 all-reduces at 1 GiB: 197.3 GB/s of 2 devices, 221.9 of 4, 229.4 of 8.
TEST(Anchors, A100AllReduce) {
  const Cluster node = cluster("dgx-a100:1");
  const AnalyticCost model = with_nvls(false);
  for (const auto& [n, measured] : {std::pair{2, 197.3}, std::pair{4, 221.9}, std::pair{8, 229.4}})
    EXPECT_NEAR(bus(model, make_communicator(node, devices(n), Collective::AllReduce), kGiB), measured,
                0.05 * measured);
}

TEST(Algorithms, SmallMessagesTakeLowLatencyProtocolsAndTrees) {
  const Communicator group = make_communicator(cluster("dgx-h100:64"), devices(512), Collective::AllReduce);
  const AnalyticCost model = with_nvls(false);
  const CommunicateCost small = model.communicate({&group, 1024}), large = model.communicate({&group, 16 * kGiB});
  EXPECT_EQ(group.routes[small.route].algorithm, Algorithm::Tree);
  EXPECT_EQ(small.protocol, Protocol::LL);
  EXPECT_EQ(large.protocol, Protocol::Simple);
  // A ring of 512 would send 1,022 messages one after the other.
  EXPECT_LT(small.latency, 200'000'000);
}

// At 370 GB/s on the wire a reduction reads and writes three times that: 1,110 of 3,350 GB/s; 24 of 132 units.
TEST(Communicate, SharesOfTheDeviceFollowItsOwnTraffic) {
  const Cluster where = cluster("dgx-h100:64");
  const CommunicateCost ring = with_nvls(false).communicate(
      {std::make_unique<Communicator>(make_communicator(where, devices(8), Collective::AllReduce)).get(), 4 * kGiB});
  EXPECT_NEAR(ring.memory_share / static_cast<double>(kOne), 1110.0 / 3350, 0.02);
  EXPECT_EQ(ring.sm_share, (24 * kOne + 66) / 132);
  // Through a trunk that carries all of a leaf's nodes, a device still sends at its NIC's 47 GB/s.
  const Communicator all = make_communicator(where, devices(512), Collective::AllToAll);
  EXPECT_NEAR(with_nvls(false).communicate({&all, kGiB}).memory_share / static_cast<double>(kOne), 94.0 / 3350, 0.003);
}

TEST(Algorithms, WithoutNvlsInTheDeviceTheSwitchDoesNotReduce) {
  const Communicator group = make_communicator(cluster("dgx-a100:1"), devices(8), Collective::AllReduce);
  const CommunicateCost cost = with_nvls(true).communicate({&group, kGiB});
  EXPECT_EQ(group.routes[cost.route].algorithm, Algorithm::Ring);
}

// Each of 16 sends 1/16 of its part to every other; 8 of 15 over its NIC: 64 GiB/16·8 at 50 GB/s.
TEST(AllToAll, AcrossNodesIsBoundByTheNics) {
  const Tuning tuning = ideal();
  const Communicator group = make_communicator(cluster("dgx-h100:2"), devices(16), Collective::AllToAll);
  EXPECT_NEAR(seconds(with_nvls(false, tuning), group, 64 * kGiB), 64.0 * kGiB / 16 * 8 / 50e9, 1e-3);
}

// Inside a node compute units copy for an all-to-all as they do for a gather, which moves as many bytes and loses what
// fills its ring. Of eight B200, SimuMax measured 537 GB/s for the one and 606 for the other.
TEST(AllToAll, InANodeReachesWhatCopiesReach) {
  for (const char* spec : {"dgx-a100:1", "dgx-h100:1", "dgx-b200:1"}) {
    const Cluster node = cluster(spec);
    const double exchanged = bus(with_nvls(false), make_communicator(node, devices(8), Collective::AllToAll), kGiB);
    const double gathered = bus(with_nvls(false), make_communicator(node, devices(8), Collective::AllGather), kGiB);
    EXPECT_GE(exchanged, 0.99 * gathered) << spec;
    EXPECT_LE(exchanged, 1.1 * gathered) << spec;
  }
}

TEST(AllToAll, OfManyVisitsSomePairsAndLoadsEveryNicAlike) {
  const Cluster large = cluster("dgx-h100:64");
  const Communicator group = make_communicator(large, devices(512), Collective::AllToAll);
  std::int64_t least = kOne, most = 0;
  for (const LinkShare& share : group.routes[0].links)
    if (large.link(share.link).kind == LinkKind::kNic) {
      least = std::min(least, share.coefficient);
      most = std::max(most, share.coefficient);
    }
  EXPECT_EQ(least, most);
  EXPECT_LT(group.routes[0].hops.size(), 20'000u);
  // 504 of 512 destinations are in other nodes; the sampled pairs all are.
  const Tuning tuning = ideal();
  EXPECT_NEAR(seconds(with_nvls(false, tuning), group, 64 * kGiB), 64.0 * kGiB * 511 / 512 / 50e9, 0.01);
}

TEST(Halo, MovesHalfOfTheBytesEachWay) {
  const Tuning tuning = ideal();
  const Communicator group = make_communicator(cluster("dgx-h100:1"), devices(4), Collective::HaloExchange);
  EXPECT_NEAR(seconds(with_nvls(false, tuning), group, kGiB), kGiB / 450e9, 1e-5);
}

// All members send to the next at once, along links that no other uses: 450 GB/s through the switch, 50 GB/s if any hop
// of the ring crosses nodes.
TEST(Shift, MovesAllOfItToTheNextInTheRing) {
  const Tuning tuning = ideal();
  const Communicator inside = make_communicator(cluster("dgx-h100:1"), devices(4), Collective::Shift);
  ASSERT_EQ(inside.routes.size(), 1u);
  EXPECT_EQ(inside.routes[0].hops, (std::vector<Hop>{{0, 1, 1}, {1, 2, 1}, {2, 3, 1}, {3, 0, 1}}));
  EXPECT_EQ(inside.routes[0].sent, 1);
  EXPECT_NEAR(seconds(with_nvls(false, tuning), inside, kGiB), kGiB / 450e9, 1e-5);
  const Communicator across = make_communicator(cluster("dgx-h100:2"), devices(16), Collective::Shift);
  EXPECT_NEAR(seconds(with_nvls(false, tuning), across, kGiB), kGiB / 50e9, 1e-4);
  // An all-gather of the same parts sends n − 1 of them.
  const Communicator gather = make_communicator(cluster("dgx-h100:1"), devices(4), Collective::AllGather);
  EXPECT_NEAR(3 * seconds(with_nvls(false, tuning), inside, kGiB), seconds(with_nvls(false, tuning), gather, 4 * kGiB),
              1e-4);
}

TEST(HostCopy, TakesThePcieLink) {
  const Tuning tuning = ideal();
  const Cluster node = cluster("dgx-h100:1");
  const Communicator down = make_host_copy(node, DeviceId(0), true), up = make_host_copy(node, DeviceId(0), false);
  EXPECT_NEAR(seconds(with_nvls(false, tuning), down, kGiB), kGiB / 63e9, 1e-5);
  EXPECT_EQ(with_nvls(false, tuning).communicate({&up, kGiB}).sm_share, 0);
  ASSERT_EQ(down.routes[0].links.size(), up.routes[0].links.size());
  for (const LinkShare& share : down.routes[0].links)
    EXPECT_TRUE(std::any_of(up.routes[0].links.begin(), up.routes[0].links.end(),
                            [&](const LinkShare& back) { return back.link == node.reverse(share.link); }));
}

// Two blocks from one device, 1 GiB and 3 GiB: its port carries 4 GiB.
TEST(BlockMoves, AreOneCommunicationOfTheirSum) {
  const Tuning tuning = ideal();
  const Cluster node = cluster("dgx-h100:1");
  const BlockMove moves[] = {{DeviceId(0), DeviceId(1), kGiB}, {DeviceId(0), DeviceId(2), 3 * kGiB}};
  const Communicator group = make_block_moves(node, moves);
  EXPECT_NEAR(seconds(with_nvls(false, tuning), group, 4 * kGiB), 4.0 * kGiB / 450e9, 1e-5);
}

TEST(Communicate, OneMemberASliceAndStayingPutTakeNoTime) {
  const Cluster node = cluster("dgx-h100:1");
  for (const Communicator& group :
       {make_communicator(node, devices(1), Collective::AllReduce),
        make_communicator(node, devices(8), Collective::Slice), make_transfer(node, DeviceId(3), DeviceId(3))})
    EXPECT_EQ(with_nvls(true).communicate({&group, kGiB}), CommunicateCost{});
}

// The engine's rate: the least of the cap and, on every link, ⌊capacity · kOne / coefficient⌋. It must be the cap.
void expect_cap_within_links(const Cluster& where, const Communicator& group, const AnalyticCost& model,
                             std::int64_t bytes) {
  const CommunicateCost cost = model.communicate({&group, bytes});
  const Route& route = group.routes[cost.route];
  std::int64_t largest = 0;
  for (const LinkShare& share : route.links) {
    const auto rate = static_cast<std::int64_t>(static_cast<__int128>(model.capacity(where.link(share.link))) * kOne /
                                                share.coefficient);
    ASSERT_LE(cost.cap, rate) << where.link_name(share.link);
    largest = std::max(largest, share.coefficient);
  }
  EXPECT_EQ(largest, kOne);
}

TEST(Communicate, TheCapIsWhatTheLinksAllowAlone) {
  const AnalyticCost models[] = {with_nvls(true), with_nvls(false)};
  for (const char* spec : {"dgx-h100:3", "dgx1-v100:2", "mi250x-node:3", "a40x8:2", "gb200-nvl72:2", "k80x4:3",
                           "dgx-h100:2+dgx-a100:1", "dgx-a100:24,oversubscription=4", "cpu-node:2"}) {
    const Cluster where = cluster(spec);
    const std::int64_t count = where.device_count();
    for (const AnalyticCost& model : models)
      for (Collective collective : {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather,
                                    Collective::AllToAll, Collective::HaloExchange, Collective::Shift})
        for (std::int64_t n : {std::int64_t{2}, std::int64_t{3}, count / 2, count})
          for (std::int64_t bytes : {std::int64_t{1}, kMiB, kGiB}) {
            SCOPED_TRACE(fmt::format("{} {} of {}: {} bytes", spec, name_of(collective), n, bytes));
            expect_cap_within_links(where, make_communicator(where, devices(n, count / n), collective), model, bytes);
          }
  }
}

TEST(Communicate, OneMembersLinksLimitAsAllLinksDo) {
  const AnalyticCost model = with_nvls(true);
  for (const char* spec : {"dgx-h100:4", "dgx-a100:4", "mi300x-node:2"}) {
    const Cluster where = cluster(spec);
    for (Collective collective : {Collective::AllReduce, Collective::AllGather, Collective::AllToAll}) {
      const Communicator group = make_communicator(where, devices(where.device_count()), collective);
      for (const Route& route : group.routes) {
        if (route.algorithm == Algorithm::Tree || route.algorithm == Algorithm::NvlsTree) continue;  // nodes differ
        const auto narrowest = [&](std::span<const LinkShare> links) {
          double least = 1e30;
          for (const LinkShare& share : links)
            least = std::min(least, static_cast<double>(model.capacity(where.link(share.link))) /
                                        static_cast<double>(share.coefficient));
          return least;
        };
        for (std::uint32_t member : {0u, 5u})
          EXPECT_DOUBLE_EQ(narrowest(links_of_member(where, group, route, member)), narrowest(route.links))
              << spec << ' ' << name_of(collective) << ' ' << name_of(route.algorithm);
      }
    }
  }
}

// Bytes on links: every hop's bytes on every link of its path.
TEST(Communicate, LinksCarryWhatTheHopsSend) {
  const Cluster where = cluster("dgx-h100:3");
  const Communicator group = make_communicator(where, devices(24), Collective::AllReduce);
  for (const Route& route : group.routes) {
    double sent = 0, carried = 0;
    for (const Hop& hop : route.hops)
      sent += hop.bytes * static_cast<double>(where.path(group.members[hop.from], group.members[hop.to]).size());
    for (const LinkShare& share : route.links)
      carried += static_cast<double>(share.coefficient) / static_cast<double>(kOne) * route.volume;
    // All links of a tree are counted with the load of the busiest, slightly more than they carry at its ends.
    const bool tree = route.algorithm == Algorithm::Tree || route.algorithm == Algorithm::NvlsTree;
    EXPECT_GE(carried, (1 - 1e-3) * sent) << name_of(route.algorithm);
    EXPECT_LE(carried, (tree ? 1.05 : 1 + 1e-3) * sent) << name_of(route.algorithm);
  }
}

RC_GTEST_PROP(CommunicateLaws, MoreBytesNeverTakeLessTime, ()) {
  static const Cluster where = cluster("dgx-h100:4");
  static const AnalyticCost model = with_nvls(true);
  const auto collective = *rc::gen::element(Collective::AllReduce, Collective::AllGather, Collective::AllToAll,
                                            Collective::HaloExchange, Collective::Shift);
  const auto n = *rc::gen::inRange<std::int64_t>(2, 33);
  const Communicator group = make_communicator(where, devices(n), collective);
  const auto bytes = *rc::gen::inRange<std::int64_t>(1, 1 << 30), more = *rc::gen::inRange<std::int64_t>(0, 1 << 30);
  const CommunicateCost small = model.communicate({&group, bytes}), large = model.communicate({&group, bytes + more});
  RC_ASSERT(isolated_time(small) > 0);
  RC_ASSERT(isolated_time(large) >= isolated_time(small));
}

RC_GTEST_PROP(CommunicateLaws, MoreNetworkBandwidthIsNeverSlower, ()) {
  static const AnalyticCost model = with_nvls(true);
  const int slow = *rc::gen::inRange(1, 400), fast = *rc::gen::inRange(slow, 800);
  const Cluster narrow = cluster(fmt::format("dgx-h100:3,nic={}Gbps", slow)),
                wide = cluster(fmt::format("dgx-h100:3,nic={}Gbps", fast));
  const auto n = *rc::gen::inRange<std::int64_t>(2, 25);
  const auto collective = *rc::gen::element(Collective::AllReduce, Collective::AllGather, Collective::AllToAll);
  const auto bytes = *rc::gen::inRange<std::int64_t>(1, 1 << 30);
  const Communicator before = make_communicator(narrow, devices(n, 24 / n), collective),
                     after = make_communicator(wide, devices(n, 24 / n), collective);
  RC_ASSERT(isolated_time(model.communicate({&after, bytes})) <= isolated_time(model.communicate({&before, bytes})));
}

// Parts of an all-gather of `bytes` in total: one member has `share` of them, the others equal parts of the rest.
PartSizes one_large_part(std::int64_t bytes, double share, std::int64_t members) {
  const auto largest = static_cast<std::int64_t>(share * static_cast<double>(bytes));
  return {.all = bytes, .largest = largest, .smallest = (bytes - largest) / (members - 1)};
}
double seconds(const CostModel& model, const Communicator& group, Parts parts, const PartSizes& bytes) {
  return static_cast<double>(isolated_time(model.communicate(query_of_parts(group, parts, bytes)))) * 1e-12;
}

// With ideal links and free memory traffic: padded sends (n−1) times the largest part, grouped all but the smallest, at
// the rate of grouped calls.
// A cluster of dgx-h100 behind a network that loses this much.
Cluster lossy(int nodes, double collisions, const char* message, const char* jitter) {
  return parse_cluster_yaml(
             fmt::format("networks: {{lossy: {{collisions: {}, message: {}, jitter: {}, step_jitter: 0}}}}\n"
                         "cluster: \"dgx-h100:{},network=lossy\"\n",
                         collisions, message, jitter, nodes),
             "lossy.yaml")
      .value();
}

TEST(NetworkTraits, AddCrowdedPathsMessagesAndTheLastOfAll) {
  const Tuning tuning = ideal();
  const AnalyticCost model = with_nvls(false, tuning);
  const std::vector<DeviceId> members = devices(8, 8);  // one device of each of 8 nodes, on one NIC of 50 GB/s
  const auto time = [&](double collisions, const char* message, const char* jitter) {
    return seconds(model, make_communicator(lossy(8, collisions, message, jitter), members, Collective::AllGather),
                   kGiB);
  };
  const double bytes = 7.0 / 8 * kGiB / 50e9;
  const double without = time(0, "0us", "0us");
  EXPECT_EQ(without, seconds(model, make_communicator(cluster("dgx-h100:8"), members, Collective::AllGather), kGiB));
  // Three doublings: the busiest path carries 1.3 times its share.
  EXPECT_NEAR(time(0.1, "0us", "0us") - without, 0.3 * bytes, 1e-6 * bytes);
  EXPECT_NEAR(time(0, "100us", "0us") - without, 7 * 100e-6, 1e-9);  // a ring of eight sends seven messages
  EXPECT_NEAR(time(0, "0us", "100us") - without, 100e-6 * std::sqrt(2 * std::log(8.0)), 1e-9);
}

TEST(NetworkTraits, ChangeNothingInsideANode) {
  const AnalyticCost model = with_nvls(false);
  const Cluster nodes = lossy(2, 1, "1ms", "1ms"), plain = cluster("dgx-h100:2");
  for (Collective collective : {Collective::AllReduce, Collective::AllGather, Collective::AllToAll})
    EXPECT_EQ(seconds(model, make_communicator(nodes, devices(8), collective), kGiB),
              seconds(model, make_communicator(plain, devices(8), collective), kGiB));
}

// Over more nodes a collective of the same bytes takes longer, and more bytes take longer, whatever is lost.
RC_GTEST_PROP(NetworkTraits, LossesGrowWithNodesAndTimeWithBytes, ()) {
  const double collisions = *rc::gen::inRange(0, 100) / 100.0;
  const std::string message = fmt::format("{}us", *rc::gen::inRange(0, 50));
  const std::string jitter = fmt::format("{}us", *rc::gen::inRange(0, 100));
  const Cluster nodes = lossy(32, collisions, message.c_str(), jitter.c_str());
  const auto collective = *rc::gen::element(Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter);
  const int stride = *rc::gen::element(1, 2, 8);
  const AnalyticCost model = with_nvls(*rc::gen::arbitrary<bool>());
  const std::int64_t bytes = *rc::gen::inRange<std::int64_t>(1 << 20, 4 * kGiB);
  double last = 0;
  for (int used : {2, 4, 8, 16, 32}) {
    const Communicator group = make_communicator(nodes, devices(used * 8 / stride, stride), collective);
    const double time = seconds(model, group, bytes);
    RC_ASSERT(time >= last);
    RC_ASSERT(seconds(model, group, bytes + bytes / 3) >= time);
    last = time;
  }
}

TEST(UnevenParts, PaddedMovesMembersTimesTheLargestGroupedWhatThereIs) {
  Tuning tuning = ideal();
  const AnalyticCost model = with_nvls(false, tuning);
  const Cluster node = cluster("dgx-h100:1");
  for (Collective collective : {Collective::AllGather, Collective::ReduceScatter}) {
    const Communicator group = make_communicator(node, devices(4), collective);
    const PartSizes bytes{.all = 8 * kGiB, .largest = 5 * kGiB, .smallest = kGiB};
    const double copies =
        2.0 * 13 * kGiB / (3.35e12);  // 5 GiB into the padded part, 8 out of the others, at most so fast
    const double latency = 3 * 1e-6;
    EXPECT_GE(seconds(model, group, Parts::Padded, bytes), 3.0 * 5 * kGiB / 450e9 + latency + copies);
    CommunicateQuery moved = query_of_parts(group, Parts::Padded, bytes);
    moved.repacked = 0;
    EXPECT_NEAR(static_cast<double>(isolated_time(model.communicate(moved))) * 1e-12, 3.0 * 5 * kGiB / 450e9 + latency,
                1e-6);
    const double rate = 450e9 * tuning.communication.grouped.value;
    EXPECT_NEAR(seconds(model, group, Parts::Grouped, bytes), 7.0 * kGiB / rate + latency, 1e-6);
  }
}

// The rate of grouped calls is from HAP's measurement: they become faster if the largest part is 1.8 times the even
// one, for 4 MB on 4 GPUs: here one on each of four of its machines, joined by 10.4 Gb/s.
TEST(UnevenParts, GroupedOvertakesPaddedWhereHapMeasuredIt) {
  const Cluster machines = cluster("v100x8:4");
  const AnalyticCost model = with_nvls(false);
  const Communicator group = make_communicator(machines, devices(4, 8), Collective::AllGather);
  double crossover = 0;
  for (double ratio = 1; ratio < 4 && crossover == 0; ratio += 0.01) {
    const PartSizes bytes = one_large_part(4'000'000, ratio / 4, 4);
    if (seconds(model, group, Parts::Grouped, bytes) <= seconds(model, group, Parts::Padded, bytes)) crossover = ratio;
  }
  EXPECT_NEAR(crossover, 1.8, 0.1);
}

// One of n members has nine tenths: padded moves 0.9·(n−1) times the total over a link, grouped at most the total once.
// (With two members both move the same, and padded does so at the full rate.) Tiny parts are bound by latency, of which
// n grouped calls have more than one padded call.
TEST(UnevenParts, PaddedIsCheaperForTinyPartsAndDearerForLargeOnes) {
  const AnalyticCost model = with_nvls(false);
  for (const char* spec : {"dgx-h100:1", "dgx-a100:4", "dgx-v100:2"})
    for (std::int64_t members : {3, 4, 8})
      for (Collective collective : {Collective::AllGather, Collective::ReduceScatter}) {
        const Communicator group = make_communicator(cluster(spec), devices(members), collective);
        const PartSizes tiny = one_large_part(10 * 64, 0.9, members), large = one_large_part(kGiB, 0.9, members);
        EXPECT_LT(seconds(model, group, Parts::Padded, tiny), seconds(model, group, Parts::Grouped, tiny))
            << spec << members;
        EXPECT_GT(seconds(model, group, Parts::Padded, large), seconds(model, group, Parts::Grouped, large))
            << spec << members;
      }
}

}  // namespace
}  // namespace weft
