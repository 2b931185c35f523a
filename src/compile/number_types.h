// The types that a step computes and sends numbers in, where they are not those the graph stores them in.
#pragma once

#include <optional>

#include "base/arithmetic.h"
#include "graph/graph.h"

namespace weft {

struct NumberTypes {
  std::optional<Arithmetic> products = {};  // tf32: of all fp32; narrower types: of the linears of blocks
  std::optional<DType> sent_gradients = {}, sent_parameters = {};
};

// What the products of an operator run in, where that is not their operands' own type.
std::optional<Arithmetic> products_of(const NumberTypes& types, const Graph& graph, OpId op);

}  // namespace weft
