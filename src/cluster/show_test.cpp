#include "cluster/show.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cluster/library.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string described(std::string_view spec) { return describe(*parse_cluster(spec)); }

TEST(Show, TheHeadlineCountsDevicesAndNodes) {
  EXPECT_THAT(described("dgx-h100:16"), StartsWith("128 × H100 SXM 80 GB in 16 nodes · rail-optimised\n"));
  EXPECT_THAT(described("titanxp-x8"), StartsWith("8 × TITAN Xp 12 GB in 1 node\n"));
  EXPECT_THAT(described("dgx1-v100:2+p100x8:6"),
              StartsWith("16 × V100 SXM2 16 GB in 2 nodes + 48 × P100 PCIe 16 GB in 6 nodes · single switch\n"));
}

TEST(Show, APcieNodeIsDrawnAsATree) {
  EXPECT_THAT(described("k80x4:16"), HasSubstr("    socket0\n"
                                               "    ├─ root · pcie 15.8 GB/s\n"
                                               "    │  ├─ pcie0 · pcie 15.8 GB/s\n"
                                               "    │  │  └─ gpu0 gpu1 · pcie 15.8 GB/s each\n"
                                               "    │  └─ pcie1 · pcie 15.8 GB/s\n"
                                               "    │     └─ gpu2 gpu3 · pcie 15.8 GB/s each\n"
                                               "    └─ nic0 · pcie 15.8 GB/s, 56 Gb/s to the network\n"));
}

TEST(Show, AMeshIsDrawnAsAMatrixAndASwitchAsABox) {
  EXPECT_THAT(described("dgx1-v100"), HasSubstr("    gpu0     -    25    25    50    50     .     .     .\n"));
  EXPECT_THAT(described("dgx-h100"), HasSubstr("║  gpu0..7               ║  450 GB/s each way per device"));
  EXPECT_THAT(described("gb200-nvl72:2"), HasSubstr("socket0 (and 35 more like it, to socket35)"));
}

TEST(Show, EveryPresetCanBeDescribed) {
  for (const std::string& name : cluster_preset_names()) {
    const Cluster cluster = *parse_cluster(name + ":3");
    EXPECT_THAT(describe(cluster), HasSubstr("bisection"));
    EXPECT_EQ(describe(cluster), describe(*parse_cluster(name + ":3")));
    EXPECT_EQ(to_json(cluster).at("devices"), cluster.device_count());
  }
  EXPECT_THAT(describe_presets(), HasSubstr("dgx-h100"));
}

TEST(Show, WhatTheNetworkLosesIsToldWithItsSources) {
  const NetworkTraits& efa = preset_library().networks.at("efa");
  const std::string text = described("p5:4");
  EXPECT_THAT(text, HasSubstr("network efa\n"));
  EXPECT_THAT(text, HasSubstr(efa.collisions.source));
  EXPECT_EQ(to_json(*parse_cluster("p5:4"))["fabric"]["networks"]["efa"]["collisions"]["value"], efa.collisions.value);
  EXPECT_THAT(describe(preset_library().networks.at("infiniband")), HasSubstr("nothing is lost"));
}

TEST(Show, JsonHasGroupsLinksAndFabric) {
  const nlohmann::json json = to_json(*parse_cluster("dgx-h100:16"));
  EXPECT_EQ(json["devices"], 128);
  EXPECT_EQ(json["nodes"], 16);
  EXPECT_EQ(json["groups"][0]["preset"], "dgx-h100");
  EXPECT_EQ(json["groups"][0]["devices_per_node"], 8);
  EXPECT_EQ(json["groups"][0]["device"]["peak_flops"]["bf16"]["value"], 989.4e12);
  EXPECT_EQ(json["fabric"]["kind"], "rail-optimised");
  EXPECT_EQ(json["fabric"]["bisection_bytes_per_s"], 16 * 400e9 / 2);
  std::int64_t links = 0;
  for (const auto& kind : json["links"]) links += kind["count"].get<std::int64_t>();
  EXPECT_EQ(links, parse_cluster("dgx-h100:16")->link_count());
  EXPECT_EQ(json["links"][2]["kind"], "nvswitch");
  EXPECT_EQ(json["links"][2]["count"], 16 * 8 * 2);  // both ways
}

}  // namespace
}  // namespace weft
