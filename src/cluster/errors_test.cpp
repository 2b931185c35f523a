// The messages a user reads when something is wrong: place, value, remedy. Compared verbatim.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cluster/cluster.h"

namespace weft {
namespace {

struct Case {
  const char* input;
  const char* message;
};

TEST(SpecErrors, NameTheValueAndTheRemedy) {
  const Case cases[] = {
      {"", "cluster spec: empty; write NAME:COUNT such as dgx-h100:16"},
      {"dgx-h10", "cluster 'dgx-h10': no such preset; did you mean dgx-h100?"},
      {"quantum", "cluster 'quantum': no such preset; `weft show clusters` lists the presets"},
      {"dgx-h100:", "dgx-h100:: count of nodes '': not a whole number"},
      {"dgx-h100:0", "dgx-h100:0: count of nodes '0': from 1 to 16,777,216"},
      {"dgx-h100:-3", "dgx-h100:-3: count of nodes '-3': from 1 to 16,777,216"},
      {"dgx-h100:1e3", "dgx-h100:1e3: count of nodes '1e3': not a whole number"},
      {"dgx-h100:99999999999999999999",
       "dgx-h100:99999999999999999999: count of nodes '99999999999999999999': does not fit 64 bits"},
      {"dgx-h100:16777216",
       "dgx-h100:16777216: 16777216 nodes of 'dgx-h100': a cluster has at most 16,777,216 devices"},
      {"dgx-h100:2+", "'': a name is missing; write NAME:COUNT, several joined by '+'"},
      {"dgx-h100:2,net=400", "dgx-h100:2,net=400: net '400': unit missing; write 400Gbps or 50GB/s"},
      {"dgx-h100:2,net=0Gbps", "dgx-h100:2,net=0Gbps: net '0Gbps': must be more than zero and below 1EB/s"},
      {"dgx-h100:2,net=1Gbps,nic=1Gbps", "dgx-h100:2,net=1Gbps,nic=1Gbps: net and nic: give one of them"},
      {"dgx-h100,net=1Gbps,2", "dgx-h100,net=1Gbps,2: count of nodes '2': comes right after the name"},
      {"dgx-h100:2,speed=3", "dgx-h100:2,speed=3: unknown option 'speed'"},
      {"dgx-h100:2,fabic=rail", "dgx-h100:2,fabic=rail: unknown option 'fabic'; did you mean fabric?"},
      {"dgx-h100:2,host=0", "dgx-h100:2,host=0: host '0': more than 0, at most 1000 times as slow as a usual one"},
      {"dgx-h100:2,network=rose", "dgx-h100:2,network=rose: network 'rose': none of that name; did you mean roce?"},
      {"dgx-h100:2,fabric=rails",
       "dgx-h100:2,fabric=rails: fabric 'rails': one of switch, fat-tree, rail, dragonfly; did you mean "
       "rail?"},
      {"dgx-h100:2,fabric=fat-tree,leaf=0",
       "dgx-h100:2,fabric=fat-tree,leaf=0: level of 0 nodes: must hold more than the level below it (0)"},
      {"dgx-h100:2,fabric=fat-tree,oversubscription=nan",
       "dgx-h100:2,fabric=fat-tree,oversubscription=nan: oversubscription nan: a factor from 0.001 to "
       "1000000; 1 is full bisection"},
      {"dgx-h100:2,device=h100",
       "dgx-h100:2,device=h100: device 'h100': no such device; did you mean h100-nvl, h100-sxm or "
       "h100-pcie?"},
      {"dgx-h100:2,fabric=rail+dgx-h200:2,fabric=switch",
       "dgx-h100:2,fabric=rail+dgx-h200:2,fabric=switch: two groups ask for different fabrics; keep one"},
      {"/nowhere/c.yaml",
       "/nowhere/c.yaml: cannot be read: No such file or directory; name a cluster file (.yaml, .xml of NCCL, or .txt "
       "of nvidia-smi topo -m)"},
      {"/nowhere/c.xml:4",
       "/nowhere/c.xml: cannot be read: No such file or directory; name a cluster file (.yaml, .xml of NCCL, or .txt "
       "of nvidia-smi topo -m)"},
  };
  for (const Case& each : cases) {
    const Result<Cluster> cluster = parse_cluster(each.input);
    ASSERT_FALSE(cluster.ok()) << each.input;
    EXPECT_EQ(cluster.error().message, each.message);
  }
}

// A file that is right but for one line: the line is put in place of {}.
std::string file_with(std::string_view links, std::string_view node) {
  return fmt::format("links:\n  {}\nnodes:\n  mine:\n    {}\ncluster: mine:2\n", links, node);
}
constexpr const char* kLink = "l: {kind: pcie, bandwidth: 50GB/s, latency: 1us}";

TEST(YamlErrors, NameFileLineValueAndRemedy) {
  const std::string node = "vertices: {g0..1: k80, n: nic}\n    wires: [[g0, g1, l], [n, g0, l], [n, network, l]]";
  ASSERT_TRUE(parse_cluster_yaml(file_with(kLink, node), "c.yaml").ok());
  struct {
    std::string text;
    const char* message;
  } cases[] = {
      {file_with("l: {kind: pcie, bandwidth: 400, latency: 1us}", node),
       "c.yaml:2: bandwidth '400': unit missing; write 400Gbps or 50GB/s"},
      {file_with("l: {kind: pcie, bandwidth: 0GB/s, latency: 1us}", node),
       "c.yaml:2: bandwidth '0GB/s': must be more than zero"},
      {file_with("l: {kind: pcie, bandwidth: -1GB/s, latency: 1us}", node), "c.yaml:2: bandwidth '-1GB/s': negative"},
      {file_with("l: {kind: pcie, bandwidth: nanGB/s, latency: 1us}", node),
       "c.yaml:2: bandwidth 'nanGB/s': not a finite number; write 400Gbps or 50GB/s"},
      {file_with("l: {kind: pcie, bandwidth: 1e300TB/s, latency: 1us}", node),
       "c.yaml:2: bandwidth '1e300TB/s': more than 1 EB/s"},
      {file_with("l: {kind: pci, bandwidth: 1GB/s, latency: 1us}", node),
       "c.yaml:2: kind 'pci': one of nvlink, nvswitch, xgmi, c2c, memory, pcie, socket, nic"},
      {file_with("l: {kind: pcie, bandwith: 1GB/s, latency: 1us}", node),
       "c.yaml:2: link 'l': unknown key 'bandwith'; did you mean bandwidth?"},
      {file_with("l: {kind: pcie, bandwidth: 1GB/s}", node), "c.yaml:2: link 'l': 'latency' missing"},
      {file_with("l: {kind: pcie, kind: nic, bandwidth: 1GB/s}", node),
       "c.yaml:2: link 'l': 'kind' given twice; keep one"},
      {file_with(kLink, "vertices: {g0: k8o}"), "c.yaml:5: 'k8o': no such device or kind of vertex; did you mean k80?"},
      {file_with(kLink, "vertices: {g0: k80, g0..1: k80}"),
       "c.yaml:5: vertex 'g0': named twice; give each vertex its own name"},
      {file_with(kLink, "vertices: {g5..1: k80}"), "c.yaml:5: name 'g5..1': a range is written gpu0..7"},
      {file_with(kLink, "vertices: {g0..99999: k80}"), "c.yaml:5: name 'g0..99999': more than 512 names"},
      {file_with(kLink, "vertices: {s: socket}"),
       "c.yaml:5: node 'mine': no device among the vertices; add one, such as gpu0..7: h100-sxm"},
      {file_with(kLink, "vertices: {g0..1: k80}\n    wires: [[g0, g0, l]]"), "c.yaml:6: 'g0': wired to itself"},
      {file_with(kLink, "vertices: {g0..1: k80}\n    wires: [[g0, g2, l]]"),
       "c.yaml:6: 'g2': no such vertex; did you mean g0 or g1?"},
      {file_with(kLink, "vertices: {g0..1: k80}\n    wires: [[g0, g1, m]]"),
       "c.yaml:6: link 'm': no such link; did you mean l?"},
      {file_with(kLink, "vertices: {g0..1: k80}\n    wires: [[g0, g1]]"),
       "c.yaml:6: wire: expected [from, to, link] or [from, to, link, count]"},
      {file_with(kLink, "vertices: {g0..2: k80, s0..1: socket}\n    wires: [[g0..2, s0..1, l]]"),
       "c.yaml:6: wire: 3 ends on one side cannot be dealt evenly over 2 on the other"},
      {file_with(kLink, "vertices: {g0..2: k80}\n    wires: [[g0, g1, l]]"),
       "c.yaml:5: node 'mine': 'g2': no wire leads from it to 'g0'; connect every vertex"},
      {file_with(kLink, "vertices: {g0: k80, n: nic}\n    wires: [[g0, n, l]]"),
       "c.yaml:5: node 'mine': 'n': not wired to the network; add a wire such as [n, network, TYPE]"},
      {file_with(kLink, "vertices: {g0..1: k80}\n    wires: [[g0, g1, l]]"),
       "c.yaml:7: 'mine' has no NIC and cannot be joined with other nodes; add one, or ask for a single "
       "node"},
      {file_with(kLink, node) + "clutser: 3\n", "c.yaml:8: file: unknown key 'clutser'; did you mean cluster?"},
      {"cluster: dgx-h1000:2\n",
       "c.yaml:1: cluster 'dgx-h1000': no such preset; did you mean dgx-h100, dgx-h200 or dgx-h800?"},
      {"cluster:\n  groups:\n    - {node: dgx-h100, count: -1}\n", "c.yaml:3: count '-1': from 1 to 16777216"},
      {"cluster:\n  groups: []\n", "c.yaml:2: groups: empty; write at least {node: dgx-h100, count: 2}"},
      {"cluster:\n  groups:\n    - {node: dgx-h100}\n  fabric: {kind: torus, latency: 1us}\n",
       "c.yaml:4: kind 'torus': one of switch, fat-tree, rail-optimised, dragonfly"},
      {"cluster:\n  groups:\n    - {node: dgx-h100}\n  fabric: {kind: fat-tree, latency: 1us, levels: "
       "[{nodes: 4}, {nodes: 2}]}\n",
       "c.yaml:4: fabric: level of 2 nodes: must hold more than the level below it (4)"},
      {"devices:\n  d: {memory: 99999999TB, memory_bandwidth: 1GB/s, compute_units: 1, copy_engines: 1, "
       "peak: {fp32: 1TFLOPS}}\n",
       "c.yaml:2: memory '99999999TB': more than 2^63 bytes"},
      {"devices:\n  d: {memory: 1GB, memory_bandwidth: 1GB/s, compute_units: 0, copy_engines: 1, peak: "
       "{fp32: 1TFLOPS}}\n",
       "c.yaml:2: compute_units '0': a whole number from 1 to 1000000"},
      {"nodes: [a\n", "c.yaml:2: not YAML: end of sequence flow not found"},
      {"", "c.yaml: empty; write at least 'cluster: dgx-h100:2'"},
      {"- a\n", "c.yaml:1: file: expected a map of 'key: value'"},
      {"devices: {}\n", "c.yaml: 0 node types and no 'cluster'; add one, such as 'cluster: dgx-h100:2'"},
  };
  for (const auto& each : cases) {
    const Result<Cluster> cluster = parse_cluster_yaml(each.text, "c.yaml");
    ASSERT_FALSE(cluster.ok()) << each.text;
    EXPECT_EQ(cluster.error().message, each.message) << each.text;
  }
}

TEST(YamlFiles, DescribeWholeClustersOrCountableNodes) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "weft_cluster_files";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, std::string_view text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  };
  const std::string node = write("node.yaml",
                                 "nodes:\n  mine: {vertices: {gpu0..3: a40, s: socket, n: nic}, wires: "
                                 "[[gpu0..3, s, pcie4-x16], [n, s, pcie4-x16], [n, network, eth-25]]}\n");
  EXPECT_EQ(parse_cluster(node)->device_count(), 4);
  EXPECT_EQ(parse_cluster(node + ":4")->device_count(), 16);
  EXPECT_EQ(parse_cluster(node + ":4+a40x4:2")->device_count(), 24);
  const std::string whole = write("whole.yaml",
                                  "cluster:\n  groups:\n    - {node: dgx-h100, count: 3}\n    - {node: "
                                  "\"dgx-a100,nic=100Gbps\", count: 1}\n");
  EXPECT_EQ(parse_cluster(whole)->device_count(), 32);
  EXPECT_EQ(parse_cluster(whole + ":2").error().message,
            whole + ": has a 'cluster' of its own and cannot be joined or counted");
  EXPECT_FALSE(parse_cluster(folder.string() + "/").ok());  // a folder is not a file
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft
