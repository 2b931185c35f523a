// Normalisation, softmax, pooling and reductions.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "models/onnx_operators.h"
#include "models/onnx_shapes.h"

namespace weft {
namespace {

Status import_batch_norm(OnnxEmitter& e) {
  WEFT_TRY(const Shape shape, e.shape(0));
  WEFT_TRY(TensorId x, e.tensor(0));
  WEFT_TRY(const TensorId gamma, e.tensor(1));
  WEFT_TRY(const TensorId beta, e.tensor(2));
  // Any number of positions: [b, c, s] is [b, c, s, 1], [b, c, t, h, w] is [b, c, t, h·w].
  if (shape.size() == 3 || shape.size() > 4) {
    Shape flat = {shape[0], shape[1], shape[2], 1};
    for (std::size_t d = 3; d < shape.size(); ++d) flat[3] *= shape[d];
    WEFT_TRY(x, e.reshape(x, flat, "flat"));
  }
  WEFT_TRY(TensorId y, e.op1(OpKind::BatchNorm, {x, gamma, beta}, {{"eps", e.attrs().number("epsilon", 1e-5)}}));
  WEFT_TRY(y, e.reshape(y, shape, "unflat"));
  e.define(0, y);
  return Ok{};
}

// LayerNormalization and RMSNormalization.
Status import_layer_norm(OnnxEmitter& e) {
  WEFT_TRY(const Shape shape, e.shape(0));
  WEFT_TRY(const std::size_t axis, resolve_axis(e.attrs().integer("axis", -1), shape.size()));
  if (axis + 1 != shape.size())
    return error("normalises the dimensions from {} on; Weft normalises the last one only", axis);
  std::vector<TensorId> inputs;
  for (std::size_t i = 0; i < (e.given(2) ? 3 : 2); ++i) {
    WEFT_TRY(const TensorId input, e.tensor(i));
    inputs.push_back(input);
  }
  Attrs attrs{{"eps", e.attrs().number("epsilon", 1e-5)}};
  const bool layer = e.node().op == "LayerNormalization";
  if (layer && !e.given(2)) attrs.set("bias", std::int64_t{0});
  WEFT_TRY(const std::vector<TensorId> y, e.op(layer ? OpKind::LayerNorm : OpKind::RmsNorm, inputs, std::move(attrs)));
  e.define(0, y[0]);
  return Ok{};
}

// Over the last dimension; another axis is transposed to the end and back.
Status import_softmax(OnnxEmitter& e) {
  WEFT_TRY(const Shape shape, e.shape(0));
  WEFT_TRY(const std::size_t axis, resolve_axis(e.attrs().integer("axis", e.opset() < 13 ? 1 : -1), shape.size()));
  const std::size_t last = shape.size() - 1;
  // Before opset 13 all dimensions from the axis on are normalised together.
  if (e.opset() < 13 && axis != last)
    return error("normalises several dimensions together; export with opset 13 or later");
  std::vector<std::int64_t> swap(shape.size());
  std::iota(swap.begin(), swap.end(), 0);
  std::swap(swap[axis], swap[last]);
  WEFT_TRY(TensorId x, e.tensor(0));
  WEFT_TRY(x, e.transpose(x, swap, "last"));
  WEFT_TRY(TensorId y, e.op1(OpKind::Softmax, {x}));
  if (e.node().op == "LogSoftmax") {
    WEFT_TRY(y, e.op1(OpKind::Unary, {y}, {{"fn", "log"}}, "log"));
  }
  WEFT_TRY(y, e.transpose(y, swap, "back"));
  e.define(0, y);
  return Ok{};
}

Status import_pool(OnnxEmitter& e) {
  const bool average = e.node().op == "AveragePool";
  WEFT_TRY(const Shape shape, e.shape(0));
  Shape kernel = e.attrs().integers("kernel_shape", {});
  if (shape.size() != kernel.size() + 2 || kernel.empty() || kernel.size() > 2)
    return error("pools [{}] with a kernel [{}]; Weft pools 1 or 2 dimensions", fmt::join(shape, ","),
                 fmt::join(kernel, ","));
  WEFT_TRY(Attrs attrs, window_attrs(e.attrs(), shape, kernel));
  if (kernel.size() == 1) {  // 1-D pooling is 2-D pooling of width 1
    const auto wide = [&](std::string_view name, std::int64_t extra) {
      std::vector<std::int64_t> list = attrs.integers(name, {});
      if (name == "pad") list.insert(list.begin() + 1, extra);
      list.push_back(extra);
      attrs.set(name, list);
    };
    wide("stride", 1);
    wide("dilation", 1);
    wide("pad", 0);
    kernel.push_back(1);
  }
  attrs.set("kernel", kernel);
  attrs.set("fn", average ? "avg" : "max");
  if (e.attrs().integer("ceil_mode", 0)) attrs.set("ceil", std::int64_t{1});
  if (average && e.attrs().integer("count_include_pad", 0)) attrs.set("include_pad", std::int64_t{1});
  WEFT_TRY(TensorId x, e.tensor(0));
  if (shape.size() == 3) {
    WEFT_TRY(x, e.reshape(x, {shape[0], shape[1], shape[2], 1}, "wide"));
  }
  WEFT_TRY(TensorId y, e.op1(OpKind::Pool2d, {x}, std::move(attrs)));
  if (shape.size() == 3) {
    const Shape pooled = e.type(y).shape;
    WEFT_TRY(y, e.reshape(y, {pooled[0], pooled[1], pooled[2]}, "line"));
  }
  e.define(0, y);
  return Ok{};
}

Status import_global_pool(OnnxEmitter& e) {
  WEFT_TRY(const Shape shape, e.shape(0));
  if (shape.size() < 3) return error("pools [{}], which has no positions", fmt::join(shape, ","));
  std::vector<std::int64_t> dims(shape.size() - 2);
  std::iota(dims.begin(), dims.end(), 2);
  WEFT_TRY(const TensorId x, e.tensor(0));
  WEFT_TRY(const TensorId y,
           e.op1(OpKind::Reduce, {x},
                 {{"fn", e.node().op == "GlobalMaxPool" ? "max" : "mean"}, {"dims", dims}, {"keep", std::int64_t{1}}}));
  e.define(0, y);
  return Ok{};
}

Status import_reduce(OnnxEmitter& e) {
  WEFT_TRY(const Shape shape, e.shape(0));
  WEFT_TRY(const std::vector<std::int64_t> axes, e.integers(1, "the axes", "axes"));
  std::vector<std::int64_t> dims;
  for (const std::int64_t axis : axes) {
    WEFT_TRY(const std::size_t d, resolve_axis(axis, shape.size()));
    dims.push_back(static_cast<std::int64_t>(d));
  }
  if (axes.empty()) {
    if (e.attrs().integer("noop_with_empty_axes", 0)) return e.alias(0, 0);
    dims.resize(shape.size());
    std::iota(dims.begin(), dims.end(), 0);
  }
  std::sort(dims.begin(), dims.end());
  if (std::adjacent_find(dims.begin(), dims.end()) != dims.end())
    return error("reduces an axis twice: [{}]", fmt::join(axes, ","));
  const std::string_view op = e.node().op;
  const std::string fn = op == "ReduceMean" ? "mean" : op == "ReduceSum" ? "sum" : "max";
  WEFT_TRY(const TensorId x, e.tensor(0));
  WEFT_TRY(const TensorId y,
           e.op1(OpKind::Reduce, {x},
                 {{"fn", fn}, {"dims", dims}, {"keep", std::int64_t{e.attrs().integer("keepdims", 1) != 0}}}));
  e.define(0, y);
  return Ok{};
}

}  // namespace

std::span<const OnnxOperator> onnx_reductions() {
  static constexpr OnnxOperator kOperators[] = {
      {"BatchNormalization", import_batch_norm},
      {"LayerNormalization", import_layer_norm},
      {"RMSNormalization", import_layer_norm},
      {"Softmax", import_softmax},
      {"LogSoftmax", import_softmax},
      {"MaxPool", import_pool},
      {"AveragePool", import_pool},
      {"GlobalAveragePool", import_global_pool},
      {"GlobalMaxPool", import_global_pool},
      {"ReduceMean", import_reduce},
      {"ReduceSum", import_reduce},
      {"ReduceMax", import_reduce},
  };
  return kOperators;
}

}  // namespace weft
