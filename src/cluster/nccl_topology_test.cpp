#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/cluster.h"
#include "cluster/group.h"

namespace weft {
namespace {

// Two GPUs and two NICs below each of two PCIe switches on two sockets; NVLinks to an NVSwitch: half a DGX
// A100.
std::string half_dgx_a100() {
  std::string text = "<system version=\"1\">\n";
  for (int socket = 0; socket < 2; ++socket) {
    text += fmt::format(
        "  <cpu numaid=\"{}\" affinity=\"ffff\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"143\" "
        "modelid=\"49\">\n",
        socket);
    text += fmt::format(
        "    <pci busid=\"0000:0{}:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" "
        "link_width=\"16\">\n",
        socket);
    for (int gpu = 0; gpu < 2; ++gpu)
      text += fmt::format(
          "      <pci busid=\"0000:{0}{1}:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
          "link_width=\"16\">\n"
          "        <gpu dev=\"{2}\" sm=\"80\" rank=\"{2}\" gdr=\"1\"><nvlink target=\"0000:c4:00.0\" "
          "count=\"6\" tclass=\"0x068000\"/>"
          "<nvlink target=\"0000:c5:00.0\" count=\"6\" tclass=\"0x068000\"/></gpu>\n      </pci>\n",
          socket + 1, gpu, 2 * socket + gpu);
    for (int nic = 0; nic < 2; ++nic)
      text += fmt::format(
          "      <pci busid=\"0000:{0}{1}:00.0\" class=\"0x020700\" link_speed=\"16.0 GT/s PCIe\" "
          "link_width=\"16\">\n"
          "        <nic><net name=\"mlx5_{2}\" dev=\"{2}\" speed=\"200000\" port=\"1\" guid=\"0x1\" "
          "maxconn=\"131072\" gdr=\"1\"/></nic>\n      </pci>\n",
          socket + 5, nic, 2 * socket + nic);
    text += "    </pci>\n  </cpu>\n";
  }
  return text + "</system>\n";
}

TEST(NcclTopology, ReadsTreeNvlinksAndNics) {
  const Result<NodeType> node = parse_nccl_topology(half_dgx_a100(), "dir/half.xml");
  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_EQ(node->name(), "half");
  EXPECT_EQ(node->device_count(), 4);
  EXPECT_EQ(node->nic_count(), 4);
  EXPECT_EQ(node->spec(0).name, "a100-80-sxm");
  EXPECT_DOUBLE_EQ(node->injection_bandwidth(0).value, 300e9);       // 12 NVLinks of 25 GB/s
  EXPECT_DOUBLE_EQ(node->network_bandwidth().value, 4 * 200e9 / 8);  // 4 × 200 Gb/s
  for (int device = 0; device < 4; ++device) EXPECT_EQ(node->nic_of(device), device);
  const Cluster cluster = *Cluster::make({{std::make_shared<const NodeType>(*node), 2}}, node->parts().fabric);
  const std::vector<LinkId> inside = cluster.path(DeviceId(0), DeviceId(3));
  EXPECT_EQ(inside.size(), 2u);
  EXPECT_DOUBLE_EQ(bottleneck(cluster, inside).value, 300e9);
  // 16 GT/s · 16 lanes · 128/130 / 8 = 31.5 GB/s
  std::vector<LinkId> host;
  cluster.append_host_path(DeviceId(0), host);
  EXPECT_NEAR(bottleneck(cluster, host).value, 31.5e9, 0.1e9);
  EXPECT_TRUE(*parse_cluster_yaml(to_yaml(cluster), "again.yaml") == cluster);
}

TEST(NcclTopology, DirectNvlinksAreCountedOnce) {
  const std::string text =
      "<system><cpu numaid=\"0\">"
      "<pci busid=\"a\" class=\"0x030200\"><gpu dev=\"0\" sm=\"70\"><nvlink target=\"b\" count=\"2\" "
      "tclass=\"0x030200\"/></gpu></pci>"
      "<pci busid=\"b\" class=\"0x030200\"><gpu dev=\"1\" sm=\"70\"><nvlink target=\"a\" count=\"2\" "
      "tclass=\"0x030200\"/></gpu></pci>"
      "</cpu></system>";
  const Result<NodeType> node = parse_nccl_topology(text, "pair.xml");
  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_DOUBLE_EQ(node->injection_bandwidth(0).value, 50e9);  // 2 × 25
  EXPECT_EQ(parse_nccl_topology(text, "pair.xml", "v100-16")->spec(0).name, "v100-16");
}

TEST(NcclTopology, KnowsDevicesByPciIdAndReadsC2cAndSocketInterfaces) {
  const std::string text =
      "<system>"
      "<cpu numaid=\"0\"><pci busid=\"a\" class=\"0x030200\" device=\"0x2941\" link_width=\"0\"><gpu "
      "dev=\"0\" sm=\"100\">"
      "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/><c2c bw=\"44712\" "
      "count=\"5\"/></gpu></pci>"
      "<nic><net name=\"eth0\" dev=\"0\" speed=\"10000\"/></nic></cpu>"
      "<cpu numaid=\"1\"><pci busid=\"b\" class=\"0x030200\" device=\"0x2941\"><gpu dev=\"1\" sm=\"100\">"
      "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>"
      "<nic><net name=\"eth0\" dev=\"0\" speed=\"10000\"/></nic></cpu></system>";
  const Result<NodeType> node = parse_nccl_topology(text, "gb200.xml");
  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_EQ(node->spec(0).name, "gb200");
  EXPECT_EQ(node->nic_count(), 1);                              // eth0 is listed below both CPUs
  EXPECT_DOUBLE_EQ(node->injection_bandwidth(0).value, 900e9);  // 18 × 50
  // The host is one hop away over PCIe and over C2C; the wider of both carries copies: 5 × 44.712 GB/s.
  const Cluster cluster = *Cluster::make({{std::make_shared<const NodeType>(*node), 1}}, node->parts().fabric);
  std::vector<LinkId> host;
  cluster.append_host_path(DeviceId(0), host);
  EXPECT_DOUBLE_EQ(bottleneck(cluster, host).value, 5 * 44.712e9);
}

TEST(NcclTopology, ErrorsNameTheLine) {
  const auto message = [](std::string_view text) { return parse_nccl_topology(text, "t.xml").error().message; };
  EXPECT_EQ(message("<system>\n<cpu></system>"), "t.xml:2: not XML: Start-end tags mismatch");
  EXPECT_EQ(message("<graphs/>"), "t.xml: no <system>; expected a dump written by NCCL_TOPO_DUMP_FILE");
  EXPECT_EQ(message("<system><cpu/></system>"),
            "t.xml: no <gpu> below a <cpu>; run NCCL on at least one GPU to write the dump");
  EXPECT_EQ(message("<system><cpu>\n<pci><gpu sm=\"12\"/></pci></cpu></system>"),
            "t.xml:2: sm '12': device unknown; name it, as in t.xml:1,device=h100-sxm");
  EXPECT_EQ(message("<system><cpu>\n<pci link_width=\"-4\"><gpu sm=\"80\"/></pci></cpu></system>"),
            "t.xml:2: link_width '-4': a number from 0 to 1e9");
  EXPECT_EQ(message("<system><cpu>\n<pci busid=\"a\"><gpu sm=\"80\"/></pci>\n<pci busid=\"a\"><gpu "
                    "sm=\"80\"/></pci></cpu></system>"),
            "t.xml:3: busid 'a': two GPUs have it");
  std::string deep = "<system><cpu>";
  for (int i = 0; i < 20000; ++i) deep += "<pci>";
  for (int i = 0; i < 20000; ++i) deep += "</pci>";
  EXPECT_EQ(message(deep + "</cpu></system>"), "t.xml:1: nested more than 32 deep");
}

}  // namespace
}  // namespace weft
