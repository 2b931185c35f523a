// The index notation in which operators are declared: "x[b,c,h~kh,w~kw] w[o,c,kh,kw] -> y[b,o,h,w]".
//
//   operand := name '[' dim,… ']' [':' dtype]
//   dim     := '...' (any number of axes, the same for all operands) | '1' | axis.axis.… (product, outer first) |
//   axis~kernel
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/dtype.h"

namespace weft {

struct NotationDim {
  bool ellipsis = false;
  std::vector<std::string> factors;  // empty without ellipsis: a dimension of size 1
  std::string kernel;                // not empty: a window
};

struct NotationOperand {
  std::string name;
  std::vector<NotationDim> dims;
  std::optional<DType> dtype;
};

struct Notation {
  std::vector<NotationOperand> inputs, outputs;
};

Result<Notation> parse_notation(std::string_view text);

}  // namespace weft
