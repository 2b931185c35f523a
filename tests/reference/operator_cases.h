// Small random instances of every operator, for tests that execute them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "graph/graph.h"

namespace weft::reference {

// How the values of an input are drawn.
enum class Values { Normal, Positive, Bits, Below };  // Below: whole numbers below `bound`

struct CaseInput {
  std::string name;
  Shape shape;
  Values values = Values::Normal;
  std::int64_t bound = 0;
};

struct OperatorCase {
  OpKind kind{};
  Attrs attrs;
  std::vector<CaseInput> inputs;  // Normal and Positive ones are differentiated
};

struct CaseGenerator {
  std::string name;
  std::function<OperatorCase(Rng&)> make;
};
const std::vector<CaseGenerator>& operator_cases();

// The case as a training graph: its operator, and a loss that weighs every differentiable output at random.
Result<Graph> case_forward_graph(const OperatorCase& operator_case);

// Fills leaves by their CaseInput; everything else (weights of the loss) is normal.
void fill_leaf(const OperatorCase& operator_case, const Graph& graph, TensorId id, std::vector<double>& values,
               Rng& rng);

}  // namespace weft::reference
