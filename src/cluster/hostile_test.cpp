// Truncated, mangled or malicious files give an error or a cluster, quickly and with little memory.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/random.h"
#include "cluster/cluster.h"
#include "cluster/show.h"

namespace weft {
namespace {

const char* const kXml =
    "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\"><pci "
    "busid=\"0000:01:00.0\" class=\"0x060400\" "
    "link_speed=\"8 GT/s\" link_width=\"16\"><pci busid=\"0000:02:00.0\" class=\"0x030200\" link_speed=\"8 "
    "GT/s\" link_width=\"16\"><gpu "
    "dev=\"0\" sm=\"70\" rank=\"0\"><nvlink target=\"0000:03:00.0\" count=\"2\" "
    "tclass=\"0x030200\"/></gpu></pci><pci "
    "busid=\"0000:03:00.0\" class=\"0x030200\"><gpu dev=\"1\" sm=\"70\" rank=\"1\"/></pci><pci "
    "busid=\"0000:04:00.0\" "
    "class=\"0x020700\"><nic><net name=\"mlx5_0\" dev=\"0\" speed=\"100000\"/><net name=\"mlx5_1\" dev=\"1\" "
    "speed=\"100000\" "
    "latency=\"1.5\"/></nic></pci></pci></cpu></system>";

// Cuts, overwrites, repeats and swaps pieces, seldom leaving the text valid.
std::string mutated(std::string text, Rng& rng) {
  static const std::string pieces[] = {
      "[",     "]",  "{", "}",     ":",        "-",       "&a ", "*a", "nan", "-1",        "99999999999999999999",
      "1e999", "\"", "'", "..",    "\n",       "\t",      "\0",  "<",  ">",   "!!binary ", "? ",
      "|",     ">-", "%", "0GB/s", "\xff\xfe", "network", "mesh"};
  for (std::int64_t n = rng.between(1, 6); n > 0 && !text.empty(); --n) {
    const std::size_t at = rng.below(text.size());
    const std::size_t length = std::min<std::size_t>(rng.below(40), text.size() - at);
    switch (rng.below(5)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, pieces[rng.below(std::size(pieces))]);
        break;
      case 3:
        text.insert(rng.below(text.size()), text.substr(at, length));
        break;
      default:
        text[at] = static_cast<char>(rng.below(256));
    }
  }
  return text;
}

TEST(Hostile, MutatedYamlGivesAClusterOrAnError) {
  std::vector<std::string> seeds;
  for (const char* spec : {"dgx1-v100:2", "k80x4:3+cpu-node", "mi250x-node:9"})
    seeds.push_back(to_yaml(*parse_cluster(spec)));
  seeds.push_back(
      "nodes:\n  n: {vertices: {g0..3: k80, n: nic}, wires: [[g0..3, mesh, nvlink1], [n, g0, qpi, 2], [n, "
      "network, eth-25]]}\ncluster: n:2,fabric=rail\n");
  Rng rng(7);
  int parsed = 0;
  for (int i = 0; i < 3000; ++i) {
    const Result<Cluster> cluster = parse_cluster_yaml(mutated(seeds[rng.below(seeds.size())], rng), "m.yaml");
    if (!cluster.ok()) {
      EXPECT_TRUE(cluster.error().message.starts_with("m.yaml")) << cluster.error().message;
      continue;
    }
    ++parsed;
    (void)cluster->path(DeviceId(0), DeviceId(static_cast<std::size_t>(cluster->device_count() - 1)));
    EXPECT_TRUE(*parse_cluster_yaml(to_yaml(*cluster), "again.yaml") == *cluster);
  }
  EXPECT_GT(parsed, 0);
}

TEST(Hostile, MutatedXmlGivesANodeOrAnError) {
  ASSERT_TRUE(parse_nccl_topology(kXml, "m.xml").ok());
  Rng rng(8);
  for (int i = 0; i < 5000; ++i) {
    const Result<NodeType> node = parse_nccl_topology(mutated(kXml, rng), "m.xml");
    EXPECT_TRUE(node.ok() || node.error().message.starts_with("m.xml"));
  }
}

TEST(Hostile, EveryTruncationOfAFileIsHandled) {
  const std::string yaml = to_yaml(*parse_cluster("k80x4:2")), xml = kXml;
  for (std::size_t length = 0; length < yaml.size(); length += 7)
    (void)parse_cluster_yaml(yaml.substr(0, length), "t.yaml");
  for (std::size_t length = 0; length < xml.size(); ++length)
    EXPECT_FALSE(parse_nccl_topology(xml.substr(0, length), "t.xml").ok());
}

std::string repeated(std::string_view piece, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += piece;
  return out;
}

TEST(Hostile, NestingIsRefused) {
  EXPECT_FALSE(parse_cluster_yaml(repeated("[", 100000), "d.yaml").ok());
  EXPECT_FALSE(parse_cluster_yaml(repeated("{a: ", 100000), "d.yaml").ok());
  EXPECT_FALSE(parse_cluster_yaml(repeated("- ", 100000), "d.yaml").ok());
  EXPECT_FALSE(parse_cluster_yaml("nodes: " + repeated("[", 400) + repeated("]", 400), "d.yaml").ok());
}

TEST(Hostile, AliasBombsDoNotExpand) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'z'; ++c)
    bomb += fmt::format("{0}: &{0} [{1}]\n", c, repeated(fmt::format("*{}, ", static_cast<char>(c - 1)), 9));
  EXPECT_FALSE(parse_cluster_yaml(bomb, "b.yaml").ok());
  // As wires, where lists may nest: once only.
  std::string wires = "nodes:\n  n:\n    vertices: {g0..1: k80}\n    wires:\n      - &a [[g0, g1, qpi]]\n";
  for (char c = 'b'; c <= 'z'; ++c)
    wires += fmt::format("      - &{0} [{1}]\n", c, repeated(fmt::format("*{}, ", static_cast<char>(c - 1)), 9));
  EXPECT_FALSE(parse_cluster_yaml(wires, "b.yaml").ok());
  EXPECT_FALSE(parse_cluster_yaml("nodes: &a {n: *a}\n", "loop.yaml").ok());
}

TEST(Hostile, HugeFilesCountsAndNodesAreRefused) {
  EXPECT_EQ(parse_cluster_yaml(repeated("#", 600000), "h.yaml").error().message,
            "h.yaml: 600000 bytes: a cluster file has at most 524288");
  EXPECT_FALSE(parse_cluster_yaml("x: [" + repeated("a,", 200000) + "]", "h.yaml").ok());
  EXPECT_FALSE(
      parse_cluster_yaml("nodes: {n: {vertices: {g0..511: k80}, wires: [[g0..511, mesh, qpi]]}}", "h.yaml").ok());
  std::string many = "nodes:\n";
  for (int i = 0; i < 2000; ++i)
    many += fmt::format("  n{}: {{vertices: {{g0..511: k80}}, wires: [[g0..510, g511, qpi]]}}\n", i);
  EXPECT_EQ(parse_cluster_yaml(many, "h.yaml").error().message,
            "h.yaml:6: node 'n4': more than 2048 vertices in one file");
  std::string spec = "k80x4";
  for (int i = 0; i < 600; ++i) spec += "+k80x4";
  EXPECT_FALSE(parse_cluster(spec).ok());  // more than 256 groups
  EXPECT_FALSE(parse_cluster(repeated("a", 100000)).ok());
}

TEST(Hostile, TheLargestNodeAndClusterStillAnswer) {
  // A chain of 512 devices: the longest routes a node can have.
  std::string chain = "nodes:\n  n:\n    vertices: {g0..511: k80}\n    wires:\n";
  for (int i = 0; i < 511; ++i) chain += fmt::format("      - [g{}, g{}, qpi]\n", i, i + 1);
  const Result<Cluster> cluster = parse_cluster_yaml(chain, "chain.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->path(DeviceId(0), DeviceId(511)).size(), 511u);
  EXPECT_FALSE(describe(*cluster).empty());
  const Result<Cluster> large = parse_cluster("cpu-node:1000000");
  ASSERT_TRUE(large.ok()) << large.error().message;
  EXPECT_EQ(large->path(DeviceId(0), DeviceId(15999999)).size(), 6u);  // core, NIC, network and back
}

RC_GTEST_PROP(Hostile, AnySpecIsHandled, (const std::string& spec)) { (void)parse_cluster_yaml(spec, "r.yaml"); }

}  // namespace
}  // namespace weft
