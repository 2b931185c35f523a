// Colour refinement: the coarsest partition of the nodes of a labelled graph in which nodes of one class have the same
// initial colour and, for every label and class, equally many neighbours.
//
// Only what a split class touches is looked at again. A pipeline whose ends differ splits its middle stage by stage, in
// as many rounds as there are stages: done for all devices each time, that took most of a simulation of 100,000.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

struct LabelledGraph {
  struct Edge {
    std::uint32_t from = 0, to = 0;  // seen from both ends alike
    std::uint64_t label = 0;
  };
  std::vector<std::uint64_t> colour;  // initial, by node
  std::vector<Edge> edges;
};

// A class for every node; numbers mean nothing but equality.
std::vector<std::uint32_t> refined(const LabelledGraph& graph);

// A number that depends on all bits of both.
std::uint64_t mix(std::uint64_t x);
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

}  // namespace weft
