#include "models/onnx_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/checked.h"

namespace weft {

// The numbers are fixed by onnx.proto.
std::optional<DType> onnx_dtype(std::int64_t number) {
  switch (number) {
    case 1:
      return DType::F32;
    case 11:
      return DType::F64;
    case 10:
      return DType::F16;
    case 16:
      return DType::BF16;
    case 17:
    case 18:
    case 19:
    case 20:
      return DType::F8;
    case 7:
    case 13:
      return DType::I64;
    case 4:
    case 5:
    case 6:
    case 12:
      return DType::I32;
    case 2:
    case 3:
    case 9:
      return DType::U8;
  }
  return std::nullopt;
}

Result<std::size_t> resolve_axis(std::int64_t axis, std::size_t rank) {
  const auto dims = static_cast<std::int64_t>(rank);
  if (axis < -dims || axis >= dims) return error("axis {} of a tensor with {} dimensions", axis, rank);
  return static_cast<std::size_t>(axis < 0 ? axis + dims : axis);
}

Result<Shape> resolve_reshape(const Shape& from, const std::vector<std::int64_t>& wanted, bool allow_zero) {
  const auto fails = [&] { return error("cannot reshape [{}] to [{}]", fmt::join(from, ","), fmt::join(wanted, ",")); };
  Shape shape = wanted;
  std::optional<std::size_t> open;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0 && !allow_zero) {
      if (d >= from.size()) return fails();
      shape[d] = from[d];
    }
    if (shape[d] < -1 || (shape[d] == -1 && open)) return fails();
    if (shape[d] == -1) open = d;
  }
  if (open) shape[*open] = 1;
  const auto elements = checked_product(from), known = checked_product(shape);
  if (!elements || !known) return fails();
  if (open) {
    if (*known == 0 || *elements % *known != 0) return fails();
    shape[*open] = *elements / *known;
  } else if (*elements != *known) {
    return fails();
  }
  return shape;
}

Result<std::vector<SliceRange>> resolve_slice(const Shape& shape, const std::vector<std::int64_t>& starts,
                                              const std::vector<std::int64_t>& ends, std::vector<std::int64_t> axes,
                                              std::vector<std::int64_t> steps) {
  if (axes.empty())
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (starts.size() != ends.size() || starts.size() != axes.size() || starts.size() != steps.size())
    return error("has {} starts, {} ends, {} axes and {} steps", starts.size(), ends.size(), axes.size(), steps.size());
  std::vector<SliceRange> ranges;
  std::vector<char> seen(shape.size(), 0);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    WEFT_TRY(const std::size_t axis, resolve_axis(axes[i], shape.size()));
    if (seen[axis]++) return error("slices axis {} twice", axis);
    const std::int64_t extent = shape[axis], step = steps[i];
    if (step == 0 || step == std::numeric_limits<std::int64_t>::min()) return error("slices in steps of {}", step);
    const auto clamp = [&](std::int64_t position, std::int64_t low, std::int64_t high) {
      return std::clamp(position < 0 ? position + extent : position, low, high);
    };
    const std::int64_t begin =
        step > 0 ? clamp(starts[i], 0, extent) : clamp(starts[i], 0, std::max<std::int64_t>(extent - 1, 0));
    const std::int64_t end = step > 0 ? clamp(ends[i], 0, extent) : clamp(ends[i], -1, extent - 1);
    const std::int64_t span = step > 0 ? end - begin : begin - end, size = step > 0 ? step : -step;
    const std::int64_t count = span <= 0 || extent == 0 ? 0 : (span - 1) / size + 1;
    ranges.push_back({axis, begin, count, count > 1 ? step : 1});
  }
  return ranges;
}

Result<Shape> squeeze(const Shape& shape, const std::optional<std::vector<std::int64_t>>& axes) {
  std::vector<char> dropped(shape.size(), 0);
  if (axes) {
    for (const std::int64_t axis : *axes) {
      WEFT_TRY(const std::size_t d, resolve_axis(axis, shape.size()));
      if (shape[d] != 1) return error("squeezes axis {} of [{}], which is not 1", axis, fmt::join(shape, ","));
      dropped[d] = 1;
    }
  }
  Shape left;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!(dropped[d] || (!axes && shape[d] == 1))) left.push_back(shape[d]);
  return left;
}

Result<Shape> unsqueeze(const Shape& shape, const std::vector<std::int64_t>& axes) {
  std::vector<char> added(shape.size() + axes.size(), 0);
  for (const std::int64_t axis : axes) {
    WEFT_TRY(const std::size_t d, resolve_axis(axis, added.size()));
    if (added[d]++) return error("adds axis {} twice", axis);
  }
  Shape result;
  std::size_t from = 0;
  for (const char is_new : added) result.push_back(is_new ? 1 : shape[from++]);
  return result;
}

Result<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()), 1);
  for (const Shape* shape : {&a, &b})
    for (std::size_t d = 0; d < shape->size(); ++d) {
      std::int64_t& extent = result[result.size() - shape->size() + d];
      if ((*shape)[d] == 1) continue;
      if (extent != 1 && extent != (*shape)[d])
        return error("[{}] and [{}] do not broadcast", fmt::join(a, ","), fmt::join(b, ","));
      extent = (*shape)[d];
    }
  return result;
}

}  // namespace weft
