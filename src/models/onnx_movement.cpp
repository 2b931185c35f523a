// Operators that move or rename elements.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "models/onnx_operators.h"
#include "models/onnx_shapes.h"

namespace weft {
namespace {

Status define_reshape(OnnxEmitter& e, const Shape& from, const Shape& to) {
  if (from == to) return e.alias(0, 0);
  WEFT_TRY(const TensorId x, e.tensor(0));
  WEFT_TRY(const TensorId y, e.reshape(x, to));
  e.define(0, y);
  return Ok{};
}

Status import_identity(OnnxEmitter& e) { return e.alias(0, 0); }

Status import_reshape(OnnxEmitter& e) {
  WEFT_TRY(const Shape from, e.shape(0));
  WEFT_TRY(const std::vector<std::int64_t> wanted, e.integers(1, "the shape", "shape"));
  WEFT_TRY(const Shape to, resolve_reshape(from, wanted, e.attrs().integer("allowzero", 0) != 0));
  return define_reshape(e, from, to);
}

Status import_flatten(OnnxEmitter& e) {
  WEFT_TRY(const Shape from, e.shape(0));
  const std::int64_t axis = e.attrs().integer("axis", 1);
  std::size_t rows = from.size();  // flattening from the end on is allowed
  if (axis != static_cast<std::int64_t>(from.size())) {
    WEFT_TRY(rows, resolve_axis(axis, from.size()));
  }
  const std::span<const std::int64_t> sizes(from);
  const auto outer = checked_product(sizes.first(rows)), inner = checked_product(sizes.subspan(rows));
  if (!outer || !inner) return error("flattens [{}], which is too large", fmt::join(from, ","));
  return define_reshape(e, from, {*outer, *inner});
}

Status import_squeeze(OnnxEmitter& e) {
  WEFT_TRY(const Shape from, e.shape(0));
  std::optional<std::vector<std::int64_t>> axes;
  if (e.given(1) || e.attrs().has("axes")) {
    WEFT_TRY(axes, e.integers(1, "the axes", "axes"));
  }
  WEFT_TRY(const Shape to, squeeze(from, axes));
  return define_reshape(e, from, to);
}

Status import_unsqueeze(OnnxEmitter& e) {
  WEFT_TRY(const Shape from, e.shape(0));
  WEFT_TRY(const std::vector<std::int64_t> axes, e.integers(1, "the axes", "axes"));
  WEFT_TRY(const Shape to, unsqueeze(from, axes));
  return define_reshape(e, from, to);
}

Status import_transpose(OnnxEmitter& e) {
  WEFT_TRY(const OnnxValue* from, e.value(0));
  const std::size_t rank = from->type.shape.size();
  std::vector<std::int64_t> reversed(rank);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  const std::vector<std::int64_t> perm = e.attrs().integers("perm", reversed);
  if (from->parameter && rank == 2 && perm == std::vector<std::int64_t>{1, 0}) {
    // Most likely the weight of a linear layer, which reads it as it is stored.
    e.define(0, OnnxValue{.type = {from->type.dtype, {from->type.shape[1], from->type.shape[0]}},
                          .transpose_of = e.node().inputs[0]});
    return Ok{};
  }
  WEFT_TRY(const TensorId x, e.tensor(0));
  WEFT_TRY(const TensorId y, e.transpose(x, perm));
  e.define(0, y);
  return Ok{};
}

// Repeats dimensions of 1, one operator each; dimensions that `to` has in front are added first.
Status define_repeated(OnnxEmitter& e, const Shape& from, const std::vector<std::int64_t>& times) {
  Shape aligned(times.size() - from.size(), 1);
  aligned.insert(aligned.end(), from.begin(), from.end());
  if (std::all_of(times.begin(), times.end(), [](std::int64_t count) { return count == 1; }))
    return define_reshape(e, from, aligned);
  WEFT_TRY(TensorId x, e.tensor(0));
  WEFT_TRY(x, e.reshape(x, aligned, "aligned"));
  for (std::size_t d = 0; d < times.size(); ++d) {
    if (times[d] == 1) continue;
    WEFT_TRY(x, e.op1(OpKind::Expand, {x}, {{"dim", static_cast<std::int64_t>(d)}, {"times", times[d]}}));
  }
  e.define(0, x);
  return Ok{};
}

Status import_expand(OnnxEmitter& e) {
  WEFT_TRY(const Shape from, e.shape(0));
  WEFT_TRY(const std::vector<std::int64_t> wanted, e.integers(1, "the shape"));
  WEFT_TRY(const Shape to, broadcast_shapes(from, wanted));
  std::vector<std::int64_t> times = to;
  for (std::size_t d = 0; d < from.size(); ++d) times[to.size() - from.size() + d] /= from[d];
  return define_repeated(e, from, times);
}

Status import_tile(OnnxEmitter& e) {
  WEFT_TRY(const Shape from, e.shape(0));
  WEFT_TRY(const std::vector<std::int64_t> times, e.integers(1, "the repeats"));
  if (times.size() != from.size()) return error("repeats {} dimensions {} times", from.size(), times.size());
  return define_repeated(e, from, times);
}

Status import_concat(OnnxEmitter& e) {
  WEFT_TRY(const Shape first, e.shape(0));
  WEFT_TRY(const std::size_t axis, resolve_axis(e.attrs().integer("axis", 1), first.size()));
  if (e.node().inputs.size() == 1) return e.alias(0, 0);
  std::vector<TensorId> parts;
  for (std::size_t i = 0; i < e.node().inputs.size(); ++i) {
    WEFT_TRY(const TensorId part, e.tensor(i));
    parts.push_back(part);
  }
  WEFT_TRY(const std::vector<TensorId> joined, e.op(OpKind::Concat, parts, {{"dim", static_cast<std::int64_t>(axis)}}));
  e.define(0, joined[0]);
  return Ok{};
}

Status import_split(OnnxEmitter& e) {
  WEFT_TRY(const Shape shape, e.shape(0));
  WEFT_TRY(const std::size_t axis, resolve_axis(e.attrs().integer("axis", 0), shape.size()));
  WEFT_TRY(std::vector<std::int64_t> sizes, e.integers(1, "the sizes", "split"));
  const std::size_t outputs = e.node().outputs.size();
  if (sizes.empty()) {  // even parts, the last one smaller
    const std::int64_t part = ceil_div(shape[axis], static_cast<std::int64_t>(outputs));
    sizes.assign(outputs, part);
    sizes.back() = shape[axis] - part * (static_cast<std::int64_t>(outputs) - 1);
  }
  if (sizes.size() != outputs) return error("splits into {} sizes for {} outputs", sizes.size(), outputs);
  if (outputs == 1) return e.alias(0, 0);
  WEFT_TRY(const TensorId x, e.tensor(0));
  const TensorId inputs[] = {x};
  WEFT_TRY(const std::vector<TensorId> parts,
           e.op(OpKind::Split, inputs, {{"dim", static_cast<std::int64_t>(axis)}, {"sizes", sizes}}));
  for (std::size_t i = 0; i < outputs; ++i) e.define(i, parts[i]);
  return Ok{};
}

Status import_slice(OnnxEmitter& e) {
  WEFT_TRY(const Shape shape, e.shape(0));
  WEFT_TRY(const auto starts, e.integers(1, "the starts", "starts"));
  WEFT_TRY(const auto ends, e.integers(2, "the ends", "ends"));
  WEFT_TRY(const auto axes, e.integers(3, "the axes", "axes"));
  WEFT_TRY(const auto steps, e.integers(4, "the steps", "steps"));
  WEFT_TRY(const std::vector<SliceRange> ranges, resolve_slice(shape, starts, ends, axes, steps));
  const bool whole = std::all_of(ranges.begin(), ranges.end(), [&](const SliceRange& range) {
    return range.step > 0 && range.count == shape[range.axis];
  });
  if (whole) return e.alias(0, 0);
  WEFT_TRY(TensorId x, e.tensor(0));
  for (const SliceRange& range : ranges) {
    if (range.count == 0) return error("slices nothing from axis {} of [{}]", range.axis, fmt::join(shape, ","));
    if (range.step < 0)
      return error("slices axis {} in steps of {}; Weft slices forwards only", range.axis, range.step);
    if (range.count == shape[range.axis]) continue;
    WEFT_TRY(x, e.op1(OpKind::Slice, {x},
                      {{"dim", static_cast<std::int64_t>(range.axis)},
                       {"begin", range.begin},
                       {"end", range.begin + (range.count - 1) * range.step + 1},
                       {"step", range.step}}));
  }
  e.define(0, x);
  return Ok{};
}

// The rows of a table by index are an embedding; known, evenly spaced positions are a slice.
Status import_gather(OnnxEmitter& e) {
  WEFT_TRY(const OnnxValue* from, e.value(0));
  WEFT_TRY(const OnnxValue* indices, e.value(1));
  const Shape shape = from->type.shape;
  WEFT_TRY(const std::size_t axis, resolve_axis(e.attrs().integer("axis", 0), shape.size()));
  if (is_floating(indices->type.dtype))
    return error("gathers with indices {}; they must be integers", print(indices->type));
  const std::size_t rank = indices->type.shape.size();
  const bool known = indices->constant && !indices->constant->integers.empty();
  if (known && rank <= 1) {
    std::vector<std::int64_t> positions = indices->constant->integers;
    bool even = true;
    for (std::int64_t& position : positions) {
      if (position < -shape[axis] || position >= shape[axis])
        return error("gathers element {} of {}", position, shape[axis]);
      if (position < 0) position += shape[axis];
    }
    const std::int64_t step = positions.size() > 1 ? positions[1] - positions[0] : 1;
    for (std::size_t i = 1; i < positions.size(); ++i) even = even && positions[i] - positions[i - 1] == step;
    if (even && step > 0) {
      WEFT_TRY(TensorId x, e.tensor(0));
      if (static_cast<std::int64_t>(positions.size()) < shape[axis]) {
        WEFT_TRY(x, e.op1(OpKind::Slice, {x},
                          {{"dim", static_cast<std::int64_t>(axis)},
                           {"begin", positions.front()},
                           {"end", positions.back() + 1},
                           {"step", step}}));
      }
      if (rank == 0) {
        Shape without = e.type(x).shape;
        without.erase(without.begin() + static_cast<std::ptrdiff_t>(axis));
        WEFT_TRY(x, e.reshape(x, without, "drop"));
      }
      e.define(0, x);
      return Ok{};
    }
  }
  if (axis != 0 || shape.size() != 2 || !is_floating(from->type.dtype))
    return error("gathers along axis {} of {} by computed indices; Weft knows lookups of rows in a table [rows, size]",
                 axis, print(from->type));
  WEFT_TRY(const TensorId ids, e.tensor(1));
  WEFT_TRY(const TensorId table, e.tensor(0));
  WEFT_TRY(const TensorId y, e.op1(OpKind::Embedding, {ids, table}));
  e.define(0, y);
  return Ok{};
}

Status import_pad(OnnxEmitter& e) {
  WEFT_TRY(const Shape shape, e.shape(0));
  WEFT_TRY(const std::vector<std::int64_t> pads,
           e.integers(1, "the pads", e.attrs().has("paddings") ? "paddings" : "pads"));
  WEFT_TRY(std::vector<std::int64_t> axes, e.integers(3, "the axes"));
  if (axes.empty()) {
    axes.resize(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (pads.size() != 2 * axes.size()) return error("has {} pads for {} dimensions", pads.size(), axes.size());
  if (std::all_of(pads.begin(), pads.end(), [](std::int64_t pad) { return pad == 0; })) return e.alias(0, 0);
  if (e.attrs().text("mode", "constant") != "constant")
    return error("pads in mode '{}'; Weft pads with zeros", printable(e.attrs().text("mode", "")));
  const double filler = e.given(2) ? e.scalar(2).value_or(1) : e.attrs().number("value", 0);
  if (filler != 0) return error("pads with something else than 0; Weft pads with zeros");
  WEFT_TRY(TensorId x, e.tensor(0));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    WEFT_TRY(const std::size_t axis, resolve_axis(axes[i], shape.size()));
    const std::int64_t low = pads[i], high = pads[axes.size() + i];
    if (low == 0 && high == 0) continue;
    WEFT_TRY(x, e.op1(OpKind::Pad, {x}, {{"dim", static_cast<std::int64_t>(axis)}, {"low", low}, {"high", high}}));
  }
  e.define(0, x);
  return Ok{};
}

}  // namespace

std::span<const OnnxOperator> onnx_movement() {
  static constexpr OnnxOperator kOperators[] = {
      {"Identity", import_identity}, {"Reshape", import_reshape},     {"Flatten", import_flatten},
      {"Squeeze", import_squeeze},   {"Unsqueeze", import_unsqueeze}, {"Transpose", import_transpose},
      {"Expand", import_expand},     {"Tile", import_tile},           {"Concat", import_concat},
      {"Split", import_split},       {"Slice", import_slice},         {"Gather", import_gather},
      {"Pad", import_pad},
  };
  return kOperators;
}

}  // namespace weft
