#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "cluster/cluster.h"
#include "cluster/group.h"

namespace weft {
namespace {

using testing::HasSubstr;

// The shape of what nvidia-smi prints: a header underlined by escape sequences, rows padded with spaces and divided by
// tabs, affinities behind the matrix, legends below.
const std::string kLegend =
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA "
    "nodes\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";

// Eight GPUs on an NVSwitch; a NIC beside every second one; two sockets.
std::string eight_on_a_switch() {
  std::string text = "\t\033[4mGPU0";
  for (int i = 1; i < 8; ++i) text += "\tGPU" + std::to_string(i);
  text += "\tNIC0\tNIC1\tNIC2\tNIC3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n";
  const auto row = [&](int self, bool gpu) {
    text += (gpu ? "GPU" : "NIC") + std::to_string(self);
    const int place = gpu ? self : 2 * self;  // a NIC is beside GPU 2 · i
    for (int other = 0; other < 8; ++other)
      text += gpu ? (other == self ? "\t X " : "\tNV18")
                  : (other == place           ? "\tPIX"
                     : other / 4 == place / 4 ? "\tNODE"
                                              : "\tSYS");
    for (int nic = 0; nic < 4; ++nic)
      text += !gpu && nic == self        ? "\t X "
              : gpu && 2 * nic == place  ? "\tPIX"
              : 2 * nic / 4 == place / 4 ? "\tNODE"
                                         : "\tSYS";
    text += gpu ? (self < 4 ? "\t0-51,104-155\t0\t\tN/A\n" : "\t52-103,156-207\t1\t\tN/A\n") : "\t\t\t\t\n";
  };
  for (int i = 0; i < 8; ++i) row(i, true);
  for (int i = 0; i < 4; ++i) row(i, false);
  return text + kLegend;
}

TEST(SmiTopology, ReadsANodeWithASwitch) {
  const Result<NodeType> node = parse_smi_topology(eight_on_a_switch(), "dir/host1.txt", "h100-sxm");
  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_EQ(node->name(), "host1");
  EXPECT_EQ(node->device_count(), 8);
  EXPECT_EQ(node->nic_count(), 4);
  EXPECT_EQ(node->spec(7).name, "h100-sxm");
  // 18 NVLinks of 25 GB/s to all others together: 7 · 18 lanes would be more than a GPU has.
  EXPECT_DOUBLE_EQ(node->injection_bandwidth(0).value, 450e9);
  EXPECT_DOUBLE_EQ(node->network_bandwidth().value, 4 * 400e9 / 8);  // as in the presets with this device: 400 Gb/s
  EXPECT_EQ(node->nic_of(0), 0);
  EXPECT_EQ(node->nic_of(6), 3);
  EXPECT_EQ(node->socket_of(0), node->socket_of(3));
  EXPECT_NE(node->socket_of(3), node->socket_of(4));
  const Cluster cluster = *Cluster::make({{std::make_shared<const NodeType>(*node), 2}}, node->parts().fabric);
  const std::vector<LinkId> inside = cluster.path(DeviceId(0), DeviceId(5));
  EXPECT_EQ(inside.size(), 2u);  // to the switch and from it
  EXPECT_DOUBLE_EQ(bottleneck(cluster, inside).value, 450e9);
}

// Four V100 of a DGX-1: NV1 and NV2 from GPU to GPU; 0 and 1 below one switch, 2 and 3 below switches of a switch.
const std::string kMesh =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\n"
    "GPU0\t X \tNV1\tNV2\tSYS\tPIX\t0-19\n"
    "GPU1\tNV1\t X \tSYS\tNV2\tPIX\t0-19\n"
    "GPU2\tNV2\tSYS\t X \tPXB\tSYS\t20-39\n"
    "GPU3\tSYS\tNV2\tPXB\t X \tSYS\t20-39\n"
    "mlx5_0\tPIX\tPIX\tSYS\tSYS\t X \t\n";

TEST(SmiTopology, ReadsLinksFromGpuToGpu) {
  const Result<NodeType> node = parse_smi_topology(kMesh, "mesh.txt", "v100-32");
  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_DOUBLE_EQ(node->injection_bandwidth(0).value, 75e9);  // 1 + 2 lanes of 25 GB/s
  const Cluster cluster = *Cluster::make({{std::make_shared<const NodeType>(*node), 1}}, node->parts().fabric);
  EXPECT_DOUBLE_EQ(bottleneck(cluster, cluster.path(DeviceId(0), DeviceId(2))).value, 50e9);
  EXPECT_DOUBLE_EQ(bottleneck(cluster, cluster.path(DeviceId(0), DeviceId(1))).value, 25e9);
  // 2 and 3: up to their common switch and down, over PCIe.
  EXPECT_EQ(cluster.path(DeviceId(2), DeviceId(3)).size(), 2u);
  EXPECT_LT(bottleneck(cluster, cluster.path(DeviceId(2), DeviceId(3))).value, 25e9);
}

TEST(SmiTopology, ReadsSpacesAndNodesWithoutNvlink) {
  const Result<NodeType> node = parse_smi_topology(
      "$ nvidia-smi topo -m\n       GPU0  GPU1  CPU Affinity\r\nGPU0    X    PHB   0-63\r\nGPU1   PHB    X    0-63\r\n",
      "two.txt", "l40s");
  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_EQ(node->device_count(), 2);
  EXPECT_EQ(node->nic_count(), 0);
  EXPECT_EQ(node->socket_of(0), node->socket_of(1));
}

TEST(SmiTopology, FaultsAreNamedByLine) {
  const auto fault = [](std::string text, const char* device = "v100-32") {
    const Result<NodeType> node = parse_smi_topology(text, "t.txt", device);
    return node.ok() ? "read" : node.error().message;
  };
  const auto with = [](std::string_view from, std::string_view to) {
    std::string text = kMesh;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(fault(kMesh, ""),
            "t.txt: which GPUs these are does not stand in the matrix; name them, as in t.txt:1,device=h100-sxm");
  EXPECT_THAT(fault(kMesh, "v100"), HasSubstr("t.txt: device 'v100': no such device"));
  EXPECT_THAT(fault("{\"train_batch_size\": 8}"),
              HasSubstr("t.txt: no line that begins with GPU0; write the file with"));
  EXPECT_THAT(fault(kMesh.substr(kMesh.find('\n') + 1)), HasSubstr("t.txt:1: the line above"));
  EXPECT_EQ(fault(with("NV1", "NVX")), "t.txt:2: 'NVX': none of X, NV#, PIX, PXB, PHB, NODE and SYS");
  EXPECT_EQ(fault(with("NV1", "NV3")), "t.txt:3: GPU1 and GPU0: another entry than on line 2");
  EXPECT_THAT(fault(with("GPU2\tNV2", "GPU9\tNV2")), HasSubstr("t.txt:4: 'GPU9': the row of GPU2 is missing"));
  EXPECT_THAT(fault(with("GPU3\tmlx5_0", "GPU2\tmlx5_0")), HasSubstr("t.txt:1: 'GPU2': two columns"));
  EXPECT_THAT(fault(kMesh.substr(0, kMesh.find("GPU3\tSYS"))), HasSubstr("the row of GPU3 is missing"));
  EXPECT_THAT(fault(with(" X \tNV1", "SYS\tNV1")), HasSubstr("t.txt:2: 'SYS' at GPU0: X stands where"));
  EXPECT_THAT(fault(with("SYS\tPIX", "SYS\tNV4")), HasSubstr("t.txt:2: 'NV4' at mlx5_0: NVLinks connect GPUs"));
  EXPECT_THAT(fault(kMesh, "l40s"), HasSubstr("NVLink of l40s, whose NVLink bandwidth is unknown; describe"));
}

// Whatever stands there: an error that names the file, or a node.
TEST(SmiTopology, DamagedMatricesNeverCrash) {
  Rng rng(7);
  const std::string whole = eight_on_a_switch();
  for (std::size_t length = 0; length < whole.size(); length += 3)
    (void)parse_smi_topology(std::string_view(whole).substr(0, length), "t.txt", "h100-sxm");
  for (int i = 0; i < 4000; ++i) {
    std::string text = i % 2 == 0 ? kMesh : whole;
    for (std::uint64_t change = 0; change < 1 + rng.below(4); ++change)
      text[rng.below(text.size())] = "\t\n X0189NVPISYGU"[rng.below(16)];
    const Result<NodeType> node = parse_smi_topology(text, "t.txt", "v100-32");
    EXPECT_TRUE(node.ok() || node.error().message.starts_with("t.txt")) << node.error().message;
  }
}

}  // namespace
}  // namespace weft
