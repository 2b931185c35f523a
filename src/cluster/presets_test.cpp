#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cluster/cluster.h"
#include "cluster/library.h"

namespace weft {
namespace {

using testing::Contains;
using testing::IsSupersetOf;

TEST(Presets, AllPromisedNamesAreThere) {
  EXPECT_THAT(cluster_preset_names(),
              IsSupersetOf({"dgx1-v100",    "dgx2-v100",    "p3dn",        "dgx-a100",    "dgx-a100-40", "dgx-h100",
                            "dgx-h200",     "dgx-b200",     "dgx-b300",    "gb200-nvl72", "mi300x-node", "mi250x-node",
                            "mi325x-node",  "mi355x-node",  "hgx-h800",    "p100x4",      "k80x4",       "titanxp-x8",
                            "a40x4",        "p100x8",       "v100x8",      "l40s-x8",     "a10x4",       "l4x8",
                            "a100-pcie-x8", "h100-pcie-x8", "h100-nvl-x8", "k80x8",       "cpu-node",    "a100-800g"}));
  EXPECT_THAT(
      device_preset_names(),
      IsSupersetOf({"k80",      "p100-sxm",  "p100-pcie", "titan-xp",    "v100-16",     "v100-32",      "a10",
                    "a40",      "l4",        "l40s",      "a100-40-sxm", "a100-80-sxm", "a100-40-pcie", "a100-80-pcie",
                    "h100-sxm", "h100-pcie", "h100-nvl",  "h200",        "b200",        "b300",         "gb200",
                    "mi250x",   "mi300x",    "mi325x",    "mi355x",      "h800",        "cpu-core"}));
}

TEST(Presets, EveryPresetAndAliasMakesAClusterOfTwoNodes) {
  for (const std::string& name : cluster_preset_names()) {
    const Result<Cluster> cluster = parse_cluster(name + ":2");
    ASSERT_TRUE(cluster.ok()) << cluster.error().message;
    EXPECT_EQ(cluster->node_count(), 2);
  }
  for (const auto& [alias, name] : preset_library().aliases) {
    EXPECT_FALSE(preset_library().nodes.contains(alias)) << alias << " is a preset of its own";
    EXPECT_EQ(*parse_cluster(alias), *parse_cluster(name));
  }
}

template <class T>
void expect_source(const Figure<T>& figure, const std::string& what) {
  EXPECT_GT(figure.source.size(), 8u) << what << " has no source worth the name";
}

TEST(Presets, EveryNumberHasASource) {
  for (const auto& [name, device] : preset_library().devices) {
    expect_source(device->memory, name);
    expect_source(device->memory_usable, name);
    expect_source(device->memory_bandwidth, name);
    expect_source(device->compute_units, name);
    expect_source(device->copy_engines, name);
    for (Arithmetic arithmetic : kArithmetics)
      if (const auto* peak = device->peak(arithmetic)) expect_source(*peak, name);
    EXPECT_NE(device->peak(Arithmetic::kFp32), nullptr) << name;
    EXPECT_LE(device->memory_usable.value, device->memory.value * 11 / 10) << name;
    EXPECT_GE(device->memory_usable.value, device->memory.value * 9 / 10) << name;
  }
  for (const auto& [name, network] : preset_library().networks) {
    expect_source(network.collisions, name);
    expect_source(network.message, name);
    expect_source(network.jitter, name);
  }
  for (const auto& [name, link] : preset_library().links) {
    expect_source(link.bandwidth, name);
    expect_source(link.latency, name);
  }
  for (const auto& [name, node] : preset_library().nodes) {
    EXPECT_GT(node->parts().source.size(), 8u) << name;
    if (const auto* tree = std::get_if<TreeFabric>(&node->parts().fabric); tree != nullptr && !tree->levels.empty())
      expect_source(tree->latency, name);
  }
}

TEST(Presets, AFigureWithoutASourceIsRefusedAmongPresets) {
  const Result<YamlNode> root =
      YamlNode::load("links:\n  x: {kind: pcie, bandwidth: 1GB/s, latency: 1us}\n", "presets/x.yaml", kClusterFile);
  ASSERT_TRUE(root.ok());
  Library library;
  const Status status = read_library(*root->map("file", file_sections()), nullptr, Sources::kRequired, library);
  EXPECT_EQ(status.error().message, "presets/x.yaml:2: bandwidth: source missing; write [value, source]");
}

TEST(Presets, PeaksAndBandwidthsAreThePublishedOnes) {
  const auto& devices = preset_library().devices;
  const auto peak = [&](const char* name, Arithmetic arithmetic) {
    return devices.at(name)->peak(arithmetic)->value.value / 1e12;
  };
  EXPECT_DOUBLE_EQ(peak("h100-sxm", Arithmetic::kBf16), 989.4);
  EXPECT_DOUBLE_EQ(peak("h100-sxm", Arithmetic::kFp8), 1978.9);
  EXPECT_DOUBLE_EQ(peak("a100-80-sxm", Arithmetic::kTf32), 156);
  EXPECT_DOUBLE_EQ(peak("v100-16", Arithmetic::kFp16), 125);
  EXPECT_EQ(devices.at("v100-16")->peak(Arithmetic::kBf16), nullptr);
  EXPECT_DOUBLE_EQ(peak("b200", Arithmetic::kFp4), 9000);
  EXPECT_DOUBLE_EQ(peak("mi300x", Arithmetic::kBf16), 1307.4);
  EXPECT_EQ(devices.at("h100-sxm")->memory_usable.value, (Bytes{81559LL << 20}));
  const auto inside = [](const char* name) {
    return preset_library().nodes.at(name)->injection_bandwidth(0).value / 1e9;
  };
  EXPECT_DOUBLE_EQ(inside("dgx1-v100"), 150);    // 6 × 25
  EXPECT_DOUBLE_EQ(inside("dgx-a100"), 300);     // 12 × 25
  EXPECT_DOUBLE_EQ(inside("dgx-h100"), 450);     // 18 × 25
  EXPECT_DOUBLE_EQ(inside("dgx-b200"), 900);     // 18 × 50
  EXPECT_DOUBLE_EQ(inside("mi300x-node"), 448);  // 7 × 64
  const auto outside = [](const char* name) {
    return preset_library().nodes.at(name)->network_bandwidth().value * 8 / 1e9;
  };
  EXPECT_DOUBLE_EQ(outside("dgx1-v100"), 400);
  EXPECT_DOUBLE_EQ(outside("dgx2-v100"), 800);
  EXPECT_DOUBLE_EQ(outside("dgx-a100"), 1600);
  EXPECT_DOUBLE_EQ(outside("dgx-h100"), 3200);
  EXPECT_DOUBLE_EQ(outside("p3dn"), 100);
  EXPECT_DOUBLE_EQ(outside("k80x4"), 56);
  EXPECT_DOUBLE_EQ(outside("p100x8"), 10.4);
}

TEST(Presets, EachGpuOfAnNvswitchNodeHasItsOwnNic) {
  for (const char* name : {"dgx-a100", "dgx-h100", "dgx-b300", "mi300x-node", "gb200-nvl72"}) {
    const NodeType& node = *preset_library().nodes.at(name);
    for (int device = 0; device < node.device_count(); ++device) EXPECT_EQ(node.nic_of(device), device) << name;
  }
}

}  // namespace
}  // namespace weft
