// The readable text form of a graph: one line per leaf tensor and one per operator; parse_graph(print(g)) == g.
//
//   graph tiny
//   input x bf16[4,8]
//   param fc.weight bf16[8,16]
//   op fc.linear = linear(x, fc.weight) -> bf16[4,16]        # x[b,k] w[k,n] -> y[b,n]; b=4 k=8 n=16
//   grad fc.linear@grad_weight = linear@grad_weight(dy: ….dx, x: x) of fc.linear -> bf16[8,16]
//   result loss.mean.loss
//
// `op`, `back` and `step` lines are operators of the three phases; `grad` lines are backward products, their operands
// named. Anything after '#' is a comment. Types after '->' are checked against what is inferred.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "graph/graph.h"

namespace weft {

struct PrintOptions {
  bool axes = false;  // add each operator's notation and axis sizes as a comment
};
std::string print(const Graph& graph, const PrintOptions& options = {});

// `file` appears in error messages: "model.weft:12: …". Cost: linear in the text.
Result<Graph> parse_graph(std::string_view text, std::string_view file);

}  // namespace weft
