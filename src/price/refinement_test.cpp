// Colour refinement is the coarsest partition that its definition names: found by looking at all nodes again and again.
#include "price/refinement.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace weft {
namespace {

std::vector<std::uint32_t> by_rounds(const LabelledGraph& graph) {
  using Seen = std::multiset<std::pair<std::uint64_t, std::uint32_t>>;  // label, class
  std::vector<std::uint32_t> classes(graph.colour.size(), 0);
  for (std::size_t before = 0;;) {
    std::vector<Seen> seen(classes.size());
    for (const LabelledGraph::Edge& edge : graph.edges) {
      seen[edge.from].emplace(edge.label, classes[edge.to]);
      seen[edge.to].emplace(edge.label, classes[edge.from]);
    }
    std::map<std::tuple<std::uint64_t, std::uint32_t, Seen>, std::uint32_t> known;
    for (std::size_t node = 0; node < classes.size(); ++node)
      classes[node] =
          known.try_emplace({graph.colour[node], classes[node], seen[node]}, static_cast<std::uint32_t>(known.size()))
              .first->second;
    if (known.size() == before) return classes;
    before = known.size();
  }
}

// The same partition, whatever its classes are numbered.
bool same_partition(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  std::map<std::uint32_t, std::uint32_t> to, back;
  for (std::size_t node = 0; node < a.size(); ++node)
    if (to.try_emplace(a[node], b[node]).first->second != b[node] ||
        back.try_emplace(b[node], a[node]).first->second != a[node])
      return false;
  return a.size() == b.size();
}

RC_GTEST_PROP(Refinement, IsTheCoarsestEquitablePartition, ()) {
  LabelledGraph graph;
  const int nodes = *rc::gen::inRange(1, 40);
  const int colours = *rc::gen::inRange(1, 3), labels = *rc::gen::inRange(1, 3);
  for (int node = 0; node < nodes; ++node)
    graph.colour.push_back(static_cast<std::uint64_t>(*rc::gen::inRange(0, colours)));
  const int edges = *rc::gen::inRange(0, 2 * nodes);
  for (int i = 0; i < edges; ++i)
    graph.edges.push_back({static_cast<std::uint32_t>(*rc::gen::inRange(0, nodes)),
                           static_cast<std::uint32_t>(*rc::gen::inRange(0, nodes)),
                           static_cast<std::uint64_t>(*rc::gen::inRange(0, labels))});
  RC_ASSERT(same_partition(refined(graph), by_rounds(graph)));
}

TEST(Refinement, TellsTheNodesOfAPathByTheirDistanceFromItsEnds) {
  LabelledGraph path;
  constexpr std::uint32_t kNodes = 101;
  path.colour.assign(kNodes, 7);
  for (std::uint32_t node = 0; node + 1 < kNodes; ++node) path.edges.push_back({node, node + 1, 0});
  const std::vector<std::uint32_t> classes = refined(path);
  EXPECT_EQ(std::set(classes.begin(), classes.end()).size(), 51u);  // 50 pairs and the middle
  EXPECT_TRUE(same_partition(classes, by_rounds(path)));
}

TEST(Refinement, LeavesARingWhole) {
  LabelledGraph ring;
  ring.colour.assign(64, 3);
  for (std::uint32_t node = 0; node < 64; ++node) ring.edges.push_back({node, (node + 1) % 64, 0});
  const std::vector<std::uint32_t> classes = refined(ring);
  EXPECT_EQ(std::set(classes.begin(), classes.end()).size(), 1u);
}

}  // namespace
}  // namespace weft
