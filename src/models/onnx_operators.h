// One handler per ONNX operator: reads the node's inputs, adds Weft operators, defines the node's outputs.
#pragma once

#include <span>
#include <string_view>

#include "models/onnx_emitter.h"

namespace weft {

struct OnnxOperator {
  std::string_view op;
  Status (*import)(OnnxEmitter&);
};

std::span<const OnnxOperator> onnx_contractions();  // Conv, Gemm, MatMul, Einsum
std::span<const OnnxOperator> onnx_reductions();    // normalisation, pooling, Reduce*
std::span<const OnnxOperator> onnx_pointwise();     // functions of one element, broadcast arithmetic
std::span<const OnnxOperator> onnx_movement();      // Reshape, Transpose, Slice, Gather, …
std::span<const OnnxOperator> onnx_recurrent();     // LSTM

// Strides, dilations and padding of a node with windows over the `rank` trailing dimensions of `x`, as
// attributes `stride`, `dilation` and `pad` of Weft's operators; `auto_pad` is worked out.
Result<Attrs> window_attrs(const Attrs& attrs, const Shape& x, const Shape& kernel);

}  // namespace weft
