#include "cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

#include "cluster/group.h"

namespace weft {
namespace {

using testing::ElementsAre;

Cluster cluster_of(std::string_view spec) {
  Result<Cluster> cluster = parse_cluster(spec);
  WEFT_CHECK(cluster.ok(), "{}", cluster.error().message);
  return std::move(cluster).value();
}

std::vector<std::string> names(const Cluster& cluster, const std::vector<LinkId>& path) {
  std::vector<std::string> out;
  for (LinkId link : path) out.push_back(cluster.link_name(link));
  return out;
}

DeviceId device(std::size_t index) { return DeviceId(index); }

TEST(Cluster, NumbersDevicesAndNodesGroupByGroup) {
  const Cluster cluster = cluster_of("dgx-v100:2+p100x8:6");
  EXPECT_EQ(cluster.device_count(), 64);
  EXPECT_EQ(cluster.node_count(), 8);
  EXPECT_FALSE(cluster.homogeneous());
  EXPECT_EQ(cluster.spec(device(15)).name, "v100-16");
  EXPECT_EQ(cluster.spec(device(16)).name, "p100-pcie");
  EXPECT_EQ(cluster.node_of(device(15)), NodeId(1));
  EXPECT_EQ(cluster.node_of(device(63)), NodeId(7));
  EXPECT_EQ(cluster.index_in_node(device(17)), 1);
  std::vector<std::uint32_t> members;
  for (DeviceId id : cluster.devices_of(NodeId(2))) members.push_back(id.index());
  EXPECT_THAT(members, ElementsAre(16, 17, 18, 19, 20, 21, 22, 23));
  // Two V100 nodes of 20 + 16 + ... wires: links are numbered without gaps.
  EXPECT_EQ(cluster.link_count(),
            2 * cluster.groups()[0].type->link_count() + 6 * cluster.groups()[1].type->link_count());
}

TEST(Cluster, GpusOfANodeTalkOverTheNvswitch) {
  const Cluster cluster = cluster_of("dgx-h100:2");
  const std::vector<LinkId> path = cluster.path(device(0), device(1));
  // gpu0 and gpu1 also share a PCIe switch, as many hops away: the wider route wins.
  EXPECT_THAT(names(cluster, path), ElementsAre("node0.gpu0 > nvswitch", "node0.nvswitch > gpu1"));
  EXPECT_EQ(bottleneck(cluster, path).value, 450e9);
  EXPECT_DOUBLE_EQ(latency(cluster, path).value, 1e-6);  // 2 × 500 ns
}

TEST(Cluster, RailOptimisedPathsChangeRailInsideTheNode) {
  const Cluster cluster = cluster_of("dgx-h100:2");
  EXPECT_THAT(names(cluster, cluster.path(device(0), device(8))),
              ElementsAre("node0.gpu0 > pcie0", "node0.pcie0 > nic0", "node0.nic0 > network", "node1.network > nic0",
                          "node1.nic0 > pcie0", "node1.pcie0 > gpu0"));
  // gpu0 to the other node's gpu5: over NVLink to gpu5 first, then along rail 5.
  EXPECT_THAT(names(cluster, cluster.path(device(0), device(13))),
              ElementsAre("node0.gpu0 > nvswitch", "node0.nvswitch > gpu5", "node0.gpu5 > pcie2", "node0.pcie2 > nic5",
                          "node0.nic5 > network", "node1.network > nic5", "node1.nic5 > pcie2", "node1.pcie2 > gpu5"));
}

TEST(Cluster, PairsWithoutNvlinkInADgx1GoOverPcieAndTheSockets) {
  const Cluster cluster = cluster_of("dgx1-v100");
  EXPECT_THAT(names(cluster, cluster.path(device(0), device(3))), ElementsAre("node0.gpu0 > gpu3"));
  EXPECT_EQ(bottleneck(cluster, cluster.path(device(0), device(3))).value, 50e9);  // two NVLinks of 25 GB/s
  EXPECT_THAT(names(cluster, cluster.path(device(0), device(7))),
              ElementsAre("node0.gpu0 > pcie0", "node0.pcie0 > socket0", "node0.socket0 > socket1",
                          "node0.socket1 > pcie3", "node0.pcie3 > gpu7"));
}

TEST(Cluster, Dgx1IsThePublishedHybridCubeMesh) {
  // nvidia-smi topo -m of a DGX-1 with V100: NVLinks between GPUs.
  const int published[8][8] = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0},
                               {2, 1, 2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                               {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};
  for (const char* preset : {"dgx1-v100", "dgx1-v100-32", "p3dn", "v100x8"}) {
    const Cluster cluster = cluster_of(preset);
    int links[8][8] = {};
    const NodeParts& parts = cluster.groups()[0].type->parts();
    for (const Wire& wire : parts.wires)
      if (parts.link_types[wire.type].kind == LinkKind::kNvlink) {
        links[wire.from][wire.to] += wire.count;
        links[wire.to][wire.from] += wire.count;
      }
    for (int a = 0; a < 8; ++a)
      for (int b = 0; b < 8; ++b) EXPECT_EQ(links[a][b], published[a][b]) << preset << " " << a << " " << b;
  }
}

TEST(Cluster, XgmiRoutesThroughGpus) {
  const Cluster cluster = cluster_of("mi250x-node");
  // Two hops: by gpu6 the bottleneck is 100 GB/s, by gpu1 or gpu2 or the socket it is 50 or less.
  EXPECT_THAT(names(cluster, cluster.path(device(0), device(7))),
              ElementsAre("node0.gpu0 > gpu6", "node0.gpu6 > gpu7"));
}

TEST(Cluster, FlexFlowsK80PairsShareASwitchAndEverythingSharesTheRoot) {
  const Cluster cluster = cluster_of("k80x4:16");
  EXPECT_EQ(cluster.device_count(), 64);
  EXPECT_THAT(names(cluster, cluster.path(device(0), device(1))),
              ElementsAre("node0.gpu0 > pcie0", "node0.pcie0 > gpu1"));
  EXPECT_THAT(names(cluster, cluster.path(device(1), device(2))),
              ElementsAre("node0.gpu1 > pcie0", "node0.pcie0 > root", "node0.root > pcie1", "node0.pcie1 > gpu2"));
  EXPECT_DOUBLE_EQ(bottleneck(cluster, cluster.path(device(0), device(4))).value, 7e9);  // 56 Gb/s
}

TEST(Cluster, HostPathsLeadToTheNearestSocket) {
  const Cluster cluster = cluster_of("dgx-a100:2");
  std::vector<LinkId> path;
  cluster.append_host_path(device(13), path);
  EXPECT_THAT(names(cluster, path), ElementsAre("node1.gpu5 > pcie2", "node1.pcie2 > socket1"));
  EXPECT_EQ(cluster.link_name(cluster.reverse(path[0])), "node1.pcie2 > gpu5");
}

TEST(Cluster, OptionsChangeTheNetworkTheDevicesAndTheFabric) {
  EXPECT_EQ(cluster_of("dgx-a100:4,net=800Gbps").groups()[0].type->network_bandwidth().value, 100e9);
  EXPECT_EQ(cluster_of("dgx-a100:4,nic=100Gbps").groups()[0].type->network_bandwidth().value, 100e9);
  EXPECT_EQ(cluster_of("dgx-a100:4,net=50GB/s").groups()[0].type->network_bandwidth().value, 50e9);
  EXPECT_EQ(cluster_of("dgx-a100:4:nic=100Gbps").groups()[0].type->network_bandwidth().value, 100e9);
  EXPECT_EQ(cluster_of("dgx1-v100:2,device=v100-32").spec(device(3)).name, "v100-32");
  const Cluster tree = cluster_of("dgx-h100:64,fabric=fat-tree,leaf=16,oversubscription=4");
  EXPECT_EQ(fabric_name(tree.fabric().spec()), "fat tree");
  // 64 nodes × 3200 Gb/s over 4, half of it: 25.6 Tb/s.
  EXPECT_DOUBLE_EQ(tree.fabric().bisection().value, 64 * 400e9 / 4 / 2);
}

TEST(Cluster, NodesHaveTheirHosts) {
  EXPECT_EQ(cluster_of("dgx-h200:1").host_of(device(0)), 1);
  const Cluster mixed = cluster_of("dgx-h200:1,host=2.5+dgx-h200:1");
  EXPECT_EQ(mixed.host_of(device(0)), 2.5);
  EXPECT_EQ(mixed.host_of(device(8)), 1);
  const Cluster again = *parse_cluster_yaml(to_yaml(mixed), "c.yaml");
  EXPECT_TRUE(again == mixed);
  EXPECT_EQ(again.host_of(device(7)), 2.5);
}

TEST(Cluster, NodesHaveTheNetworkOfTheirNics) {
  const auto network = [](std::string_view spec) {
    const NetworkTraits* found = parse_cluster(spec)->groups()[0].type->network();
    return found == nullptr ? "none" : found->name;
  };
  NetworkTraits uneven;
  EXPECT_TRUE(uneven.loses_nothing());
  uneven.step_jitter.value = 0.01;
  EXPECT_FALSE(uneven.loses_nothing());
  EXPECT_EQ(network("dgx-h100:2"), "infiniband");
  EXPECT_EQ(network("p5:2"), "efa");
  EXPECT_EQ(network("a100-opa:2"), "omni-path");
  EXPECT_EQ(network("mi300x-node:2"), "roce");
  EXPECT_EQ(network("dgx-h100:2,network=roce"), "roce");
  EXPECT_EQ(network("dgx-h100:2,nic=200Gbps,network=efa,fabric=switch"), "efa");
  const Cluster own = *parse_cluster_yaml(
      "networks: {mine: {collisions: [0.2, measured], message: 3us, jitter: 7us, step_jitter: 0.01}}\n"
      "cluster: \"dgx-h100:4,network=mine\"\n",
      "c.yaml");
  const NetworkTraits& mine = *own.groups()[0].type->network();
  EXPECT_EQ(mine.collisions, (Figure<double>{0.2, "measured"}));
  EXPECT_DOUBLE_EQ(mine.crowding(1), 1);
  EXPECT_DOUBLE_EQ(mine.crowding(8), 1.6);
  EXPECT_EQ(mine.wait_for_last(1).value, 0);
  EXPECT_EQ(mine.slowdown(8, 8), 1);
  EXPECT_NEAR(mine.slowdown(1024, 8), 1 + 0.01 * (std::sqrt(2 * std::log(1024.0)) - std::sqrt(2 * std::log(8.0))),
              1e-12);
  EXPECT_EQ(*parse_cluster_yaml(to_yaml(own), "again.yaml"), own);
}

TEST(Cluster, MixedClustersMeetOnASingleSwitchUnlessTheirFabricsAgree) {
  EXPECT_EQ(fabric_name(cluster_of("dgx-h100:2+k80x4:2").fabric().spec()), "single switch");
  EXPECT_EQ(fabric_name(cluster_of("dgx-h100:2+dgx-h200:2").fabric().spec()), "rail-optimised");
}

TEST(Cluster, SixteenThousandDevicesHaveValidPathsAndGroups) {
  const Cluster cluster = cluster_of("dgx-h100:2048");
  EXPECT_EQ(cluster.device_count(), 16384);
  std::vector<DeviceId> ring;
  for (std::size_t d = 0; d < 16384; d += 8) ring.push_back(device(d));
  const GroupShape group = shape(cluster, ring);
  EXPECT_EQ(group.nodes, 2048);
  EXPECT_EQ(group.most_per_node, 1);
  EXPECT_TRUE(group.crosses_fabric);  // pods of 32 nodes
  EXPECT_EQ(group.slowest, LinkKind::kNic);
  EXPECT_EQ(group.ring_bandwidth.value, 50e9);  // 400 Gb/s
}

TEST(Group, ARingInsideANodeUsesEachPortOnce) {
  const Cluster cluster = cluster_of("dgx-h100");
  std::vector<DeviceId> ring;
  for (DeviceId id : cluster.devices()) ring.push_back(id);
  const std::vector<LinkLoad> uses = ring_links(cluster, ring);
  EXPECT_EQ(uses.size(), 16u);  // 8 ports, both ways
  for (const LinkLoad& use : uses) EXPECT_EQ(use.count, 1);
  EXPECT_EQ(shape(cluster, ring).slowest, LinkKind::kNvswitch);
  EXPECT_EQ(ring_links(cluster, std::vector{device(3)}).size(), 0u);
}

TEST(Group, ARingOverPcieSharesTheSocketsOnce) {
  const Cluster cluster = cluster_of("titanxp-x8");
  std::vector<DeviceId> ring;
  for (DeviceId id : cluster.devices()) ring.push_back(id);
  const GroupShape group = shape(cluster, ring);
  EXPECT_EQ(group.slowest, LinkKind::kPcie);
  EXPECT_EQ(group.ring_bandwidth.value, 15.75e9);
  // Eight members, all pairs: 4 × 4 × 2 cross the sockets, half of them each way.
  int across = 0;
  for (const LinkLoad& use : pair_links(cluster, ring))
    if (cluster.link(use.link).kind == LinkKind::kSocket) across = std::max(across, use.count);
  EXPECT_EQ(across, 16);
}

// Follows a path through the node types: each link must start where the one before ends, inside nodes and at the
// network.
void expect_walk(const Cluster& cluster, DeviceId a, DeviceId b) {
  const std::vector<LinkId> path = cluster.path(a, b);
  if (a == b) {
    RC_ASSERT(path.empty());
    return;
  }
  std::string at =
      fmt::format("node{}.{}", cluster.node_of(a).index(),
                  cluster.type_of(cluster.node_of(a))
                      .parts()
                      .vertices[cluster.type_of(cluster.node_of(a)).device_vertices()[cluster.index_in_node(a)]]
                      .name);
  for (LinkId link : path) {
    if (cluster.link(link).kind == LinkKind::kFabric) {
      RC_ASSERT(at == "network");
      continue;
    }
    const std::string name = cluster.link_name(link);  // "node3.gpu0 > nvswitch"
    const std::string node = name.substr(0, name.find('.') + 1);
    const std::string from = name.substr(node.size(), name.find(" > ") - node.size());
    const std::string to = name.substr(name.find(" > ") + 3);
    RC_ASSERT(at == (from == "network" ? from : node + from));
    at = to == "network" ? to : node + to;
    RC_ASSERT(cluster.link(link).bandwidth.value > 0);
    RC_ASSERT(cluster.reverse(cluster.reverse(link)) == link);
    RC_ASSERT(cluster.link(cluster.reverse(link)).bandwidth == cluster.link(link).bandwidth);
  }
  RC_ASSERT(at ==
            fmt::format("node{}.{}", cluster.node_of(b).index(),
                        cluster.type_of(cluster.node_of(b))
                            .parts()
                            .vertices[cluster.type_of(cluster.node_of(b)).device_vertices()[cluster.index_in_node(b)]]
                            .name));
}

RC_GTEST_PROP(ClusterLaw, PathsAreWalksFromStartToEndAndAsLongBothWays, ()) {
  const std::vector<std::string> presets = cluster_preset_names();
  const std::string preset = *rc::gen::elementOf(presets);
  const int nodes = *rc::gen::inRange(1, 200);
  const std::string fabric = *rc::gen::element<std::string>("", ",fabric=switch", ",fabric=fat-tree,leaf=3",
                                                            ",fabric=rail,leaf=5", ",fabric=dragonfly");
  const Cluster cluster = cluster_of(fmt::format("{}:{}{}", preset, nodes, fabric));
  const auto devices = static_cast<std::size_t>(cluster.device_count());
  for (int i = 0; i < 20; ++i) {
    const DeviceId a = device(*rc::gen::inRange<std::size_t>(0, devices)),
                   b = device(*rc::gen::inRange<std::size_t>(0, devices));
    expect_walk(cluster, a, b);
    // Rails forced on a node without a scale-up switch: a relay may exist on one side only.
    if (fabric != ",fabric=rail,leaf=5") RC_ASSERT(cluster.path(a, b).size() == cluster.path(b, a).size());
    for (LinkId link : cluster.path(a, b)) RC_ASSERT(link.index() < cluster.link_count());
  }
}

RC_GTEST_PROP(ClusterLaw, MixedClustersHaveValidPaths, ()) {
  const std::vector<std::string> presets = cluster_preset_names();
  std::string spec;
  for (int g = *rc::gen::inRange(2, 5); g > 0; --g)
    spec += fmt::format("{}{}:{}", spec.empty() ? "" : "+", *rc::gen::elementOf(presets), *rc::gen::inRange(1, 40));
  const Cluster cluster = cluster_of(spec + *rc::gen::element<std::string>("", ",fabric=rail,leaf=7"));
  const auto devices = static_cast<std::size_t>(cluster.device_count());
  for (int i = 0; i < 20; ++i)
    expect_walk(cluster, device(*rc::gen::inRange<std::size_t>(0, devices)),
                device(*rc::gen::inRange<std::size_t>(0, devices)));
}

RC_GTEST_PROP(ClusterLaw, PrintingAndParsingGivesTheSameCluster, ()) {
  const std::vector<std::string> presets = cluster_preset_names();
  std::string spec;
  for (int g = *rc::gen::inRange(1, 4); g > 0; --g)
    spec += fmt::format("{}{}:{}{}", spec.empty() ? "" : "+", *rc::gen::elementOf(presets), *rc::gen::inRange(1, 1000),
                        *rc::gen::element<std::string>("", ",nic=10Gbps", ",net=123Gbps"));
  spec += *rc::gen::element<std::string>("", ",fabric=fat-tree,oversubscription=2.5", ",fabric=dragonfly");
  const Cluster cluster = cluster_of(spec);
  const std::string text = to_yaml(cluster);
  const Result<Cluster> again = parse_cluster_yaml(text, "again.yaml");
  if (!again.ok()) RC_FAIL(again.error().message);
  RC_ASSERT(*again == cluster);
  RC_ASSERT(to_yaml(*again) == text);
}

// Random small graphs, drawn as a spanning tree plus extra wires, survive the round trip and have valid
// routes.
RC_GTEST_PROP(ClusterLaw, RandomNodesRouteEverywhere, ()) {
  const int vertices = *rc::gen::inRange(2, 24);
  std::string text =
      "links:\n  a: {kind: pcie, bandwidth: 10GB/s, latency: 1us}\n  b: {kind: nvlink, bandwidth: 30GB/s, "
      "latency: 1us}\nnodes:\n  n:\n    vertices:\n      v0: k80\n";
  for (int v = 1; v < vertices; ++v)
    text += fmt::format("      v{}: {}\n", v,
                        *rc::gen::element<std::string>("k80", "p100-sxm", "pcie-switch", "socket", "switch"));
  text += "    wires:\n";
  for (int v = 1; v < vertices; ++v)
    text +=
        fmt::format("      - [v{}, v{}, {}]\n", v, *rc::gen::inRange(0, v), *rc::gen::element<std::string>("a", "b"));
  for (int extra = *rc::gen::inRange(0, 12); extra > 0; --extra) {
    const int a = *rc::gen::inRange(0, vertices), b = *rc::gen::inRange(0, vertices);
    if (a != b)
      text += fmt::format("      - [v{}, v{}, {}, {}]\n", a, b, *rc::gen::element<std::string>("a", "b"),
                          *rc::gen::inRange(1, 4));
  }
  const Result<Cluster> cluster = parse_cluster_yaml(text, "random.yaml");
  if (!cluster.ok()) RC_FAIL(cluster.error().message + "\n" + text);
  for (DeviceId a : cluster->devices())
    for (DeviceId b : cluster->devices()) {
      expect_walk(*cluster, a, b);
      RC_ASSERT(cluster->path(a, b).size() == cluster->path(b, a).size());
    }
  RC_ASSERT(*parse_cluster_yaml(to_yaml(*cluster), "again.yaml") == *cluster);
}

TEST(DevicesEvenly, AreTheFirstOfEachNode) {
  const auto indices = [](const Result<std::vector<DeviceId>>& devices) {
    std::vector<std::size_t> all;
    for (DeviceId device : devices.value()) all.push_back(device.index());
    return all;
  };
  const Cluster two = parse_cluster("dgx-h100:2").value();
  EXPECT_EQ(indices(devices_evenly(two, 4)), (std::vector<std::size_t>{0, 1, 8, 9}));
  EXPECT_EQ(indices(devices_evenly(two, 5)), (std::vector<std::size_t>{0, 1, 2, 8, 9}));
  EXPECT_EQ(devices_evenly(two, 16)->size(), 16u);
  // The part that a small node cannot hold goes to the others.
  const Cluster mixed = parse_cluster("p100x4:1+dgx-h100:1").value();
  EXPECT_EQ(indices(devices_evenly(mixed, 10)), (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(indices(devices_evenly(mixed, 4)), (std::vector<std::size_t>{0, 1, 4, 5}));
  // Each of two racks contributes half of the devices.
  const Cluster racks = parse_cluster("gb200-nvl72:2").value();
  const std::vector<DeviceId> half = devices_evenly(racks, 128).value();
  EXPECT_EQ(racks.node_of(half[63]).index(), 0u);
  EXPECT_EQ(racks.node_of(half[64]).index(), 1u);
  EXPECT_EQ(devices_evenly(two, 17).error().message, "17 devices: the cluster has 16; name more nodes");
  EXPECT_EQ(devices_evenly(two, 1).error().message,
            "1 devices: the cluster has 2 nodes, each with one at least; name fewer nodes");
  EXPECT_FALSE(devices_evenly(two, -3).ok());
}

}  // namespace
}  // namespace weft
