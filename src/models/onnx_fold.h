// Evaluates nodes on small constants: how exported files compute shapes.
#pragma once

#include <optional>
#include <span>

#include "base/result.h"
#include "models/onnx_reader.h"

namespace weft {

// The result of `node` on constant inputs (nullptr: left out). Nothing when the node is none of the operators
// that shape computations use, an input is not known, or the result has more than kMaxKnownElements elements.
// Large results whose shape alone is known (ConstantOfShape, Range) come back with `known` unset. Cost: the
// elements of the result.
Result<std::optional<OnnxTensor>> fold(const OnnxNode& node, std::span<const OnnxTensor* const> inputs);

}  // namespace weft
