// The shape arithmetic of ONNX's movement operators, for constants and for tensors alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/dtype.h"
#include "graph/signature.h"

namespace weft {

// The element type for a number of TensorProto::DataType; none for strings and complex numbers.
std::optional<DType> onnx_dtype(std::int64_t number);

// Counts from the end when negative; an error unless within the rank.
Result<std::size_t> resolve_axis(std::int64_t axis, std::size_t rank);

// The shape a Reshape gives: 0 copies (unless `allow_zero`), −1 is what is left.
Result<Shape> resolve_reshape(const Shape& from, const std::vector<std::int64_t>& wanted, bool allow_zero);

// One axis of a Slice, clamped the way ONNX does: the elements begin, begin + step, …, `count` of them.
struct SliceRange {
  std::size_t axis = 0;
  std::int64_t begin = 0, count = 0, step = 1;
};
// Empty axes: the first ones; empty steps: all 1.
Result<std::vector<SliceRange>> resolve_slice(const Shape& shape, const std::vector<std::int64_t>& starts,
                                              const std::vector<std::int64_t>& ends, std::vector<std::int64_t> axes,
                                              std::vector<std::int64_t> steps);

// Without axes every dimension of 1 is removed.
Result<Shape> squeeze(const Shape& shape, const std::optional<std::vector<std::int64_t>>& axes);
Result<Shape> unsqueeze(const Shape& shape, const std::vector<std::int64_t>& axes);

// NumPy broadcasting of two shapes.
Result<Shape> broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace weft
