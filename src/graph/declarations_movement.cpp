// Operators that move or rename elements without arithmetic.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/checked.h"
#include "graph/declaration.h"

namespace weft {
namespace {

// The dimension that concat, split, slice and expand act on, seen as `outer` blocks: "o.p" where outer > 1.
struct Along {
  std::vector<std::string> names;  // of all dimensions
  std::size_t dim = 0;
  std::int64_t outer = 1;

  // The operand's indices with the dimension given by axis `inner`.
  std::string with(const std::string& inner) const {
    std::vector<std::string> dims = names;
    dims[dim] = outer > 1 ? "o." + inner : inner;
    return fmt::format("{}", fmt::join(dims, ","));
  }
  std::vector<std::pair<std::string, std::int64_t>> sizes() const {
    if (outer > 1) return {{"o", outer}};
    return {};
  }
};

Result<Along> along(std::string_view op, const Attrs& attrs, const TensorType& input) {
  const std::int64_t dim = attrs.integer("dim", -1), outer = attrs.integer("outer", 1);
  if (dim < 0 || dim >= static_cast<std::int64_t>(input.shape.size()))
    return error("{}: dim={} of an input {}", op, dim, print(input));
  if (outer <= 0) return error("{}: outer={} must be positive", op, outer);
  return Along{axis_names_for_rank(input.shape.size()), static_cast<std::size_t>(dim), outer};
}

// Names parts by size, so that parts of one size share an axis ("p", "p1", …).
class PartNames {
 public:
  std::string name(std::int64_t size) {
    const auto [at, fresh] = names_.try_emplace(size, fmt::format("p{}", names_.size()));
    if (fresh) sizes.emplace_back(at->second, size);
    return at->second;
  }
  std::string whole() const {
    std::string text;
    for (const auto& [name, size] : sizes) text += name + " ";
    return text;
  }
  std::vector<std::pair<std::string, std::int64_t>> sizes;

 private:
  std::map<std::int64_t, std::string> names_;
};

Result<Declaration> concat(const Attrs& attrs, Inputs inputs) {
  if (inputs.empty()) return error("concat: takes at least one input");
  WEFT_TRY(const Along shape, along("concat", attrs, inputs[0]));
  PartNames parts;
  std::string notation, joint, gradient = "grad: dy ->";
  std::int64_t total = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].shape.size() != inputs[0].shape.size() || inputs[i].shape[shape.dim] % shape.outer != 0)
      return error("concat: {} does not join {} along dimension {}", print(inputs[i]), print(inputs[0]), shape.dim);
    const std::int64_t size = inputs[i].shape[shape.dim] / shape.outer;
    total += size;
    notation += fmt::format("x{}[{}] ", i, shape.with(parts.name(size)));
    joint += fmt::format("{}x{}", i > 0 ? "+" : "", i);
    gradient += fmt::format(" dx{}", i);
  }
  Declaration declaration{
      .notation = notation + fmt::format("-> y[{}]", shape.with(parts.name(total))),
      .sizes = shape.sizes(),
      .whole = parts.whole(),
      .linear = joint,
      .gradients = {gradient},
  };
  declaration.sizes.insert(declaration.sizes.end(), parts.sizes.begin(), parts.sizes.end());
  return declaration;
}

Result<Declaration> split(const Attrs& attrs, Inputs inputs) {
  if (inputs.size() != 1) return error("split: takes 1 input, not {}", inputs.size());
  WEFT_TRY(const Along shape, along("split", attrs, inputs[0]));
  const std::vector<std::int64_t> sizes = attrs.integers("sizes", {});
  std::int64_t total = 0;
  for (std::int64_t size : sizes) {
    if (size <= 0 || size > inputs[0].shape[shape.dim])
      return error("split: sizes must be positive and fit, not {}", size);
    total += size;
  }
  if (total * shape.outer != inputs[0].shape[shape.dim])
    return error("split: sizes sum to {} in {} blocks, but dimension {} has {}", total, shape.outer, shape.dim,
                 inputs[0].shape[shape.dim]);
  PartNames parts;
  std::string outputs, aliases, gradient = "grad:";
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    outputs += fmt::format(" y{}[{}]", i, shape.with(parts.name(sizes[i])));
    aliases += fmt::format("y{}:x ", i);
    gradient += fmt::format(" dy{}", i);
  }
  Declaration declaration{
      .notation = fmt::format("x[{}] ->{}", shape.with(parts.name(total)), outputs),
      .sizes = shape.sizes(),
      .whole = parts.whole(),
      .linear = "x",
      .aliases = aliases,
      .gradients = {gradient + " -> dx"},
  };
  declaration.sizes.insert(declaration.sizes.end(), parts.sizes.begin(), parts.sizes.end());
  return declaration;
}

Result<Declaration> slice(const Attrs& attrs, Inputs inputs) {
  if (inputs.size() != 1) return error("slice: takes 1 input, not {}", inputs.size());
  WEFT_TRY(const Along shape, along("slice", attrs, inputs[0]));
  const std::int64_t extent = inputs[0].shape[shape.dim], begin = attrs.integer("begin", 0);
  const std::int64_t end = attrs.integer("end", extent), step = attrs.integer("step", 1);
  if (begin < 0 || end > extent || begin >= end || step <= 0)
    return error("slice: [{}:{}:{}] of a dimension of {}", begin, end, step, extent);
  return Declaration{
      .notation = fmt::format("x[{}] -> y[{}]", shape.with("p"), shape.with("q")),
      .sizes = {{"p", extent}, {"q", ceil_div(end - begin, step)}},
      .whole = "p q",
      .linear = "x",
      .aliases = "y:x",
      .gradients = {"grad: dy -> dx"},
  };
}

Result<Declaration> pad(const Attrs& attrs, Inputs inputs) {
  if (inputs.size() != 1) return error("pad: takes 1 input, not {}", inputs.size());
  WEFT_TRY(const Along shape, along("pad", attrs, inputs[0]));
  const std::int64_t extent = inputs[0].shape[shape.dim], low = attrs.integer("low", 0),
                     high = attrs.integer("high", 0);
  if (low < 0 || high < 0 || low > (1LL << 40) || high > (1LL << 40)) return error("pad: low={} high={}", low, high);
  return Declaration{
      .notation = fmt::format("x[{}] -> y[{}]", shape.with("p"), shape.with("q")),
      .sizes = {{"p", extent}, {"q", extent + low + high}},
      .whole = "p q",
      .linear = "x",
      .gradients = {"grad: dy -> dx"},
  };
}

// Dimensions of both shapes as products of common axes. Shapes of the same number of elements are cut at every position
// (number of elements to the right) where either has a border; where the borders do not divide one another, the stretch
// between two common borders is opaque: its axes stay whole.
Result<Declaration> reshape(const Attrs& attrs, Inputs inputs) {
  if (inputs.size() != 1) return error("reshape: takes 1 input, not {}", inputs.size());
  const Shape& from = inputs[0].shape;
  const Shape to = attrs.integers("shape", {});
  const auto elements = checked_product(from), wanted = checked_product(to);
  for (std::int64_t extent : to)
    if (extent <= 0) return error("reshape: to [{}]: dimensions must be positive", fmt::join(to, ","));
  if (!elements || !wanted || *elements != *wanted)
    return error("reshape: {} has other elements than [{}]", print(inputs[0]), fmt::join(to, ","));

  std::vector<std::string> names;  // one axis per common piece, left to right
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  std::vector<std::vector<std::string>> in(from.size()), out(to.size());
  std::string whole;
  std::size_t i = 0, j = 0;
  std::int64_t left_in = 1, left_out = 1;  // what is left of the current dimension on either side
  int count = 0;
  while (i < from.size() || j < to.size() || left_in > 1 || left_out > 1) {
    if (left_in == 1 && i < from.size()) {
      left_in = from[i++];
      if (left_in == 1) continue;
    }
    if (left_out == 1 && j < to.size()) {
      left_out = to[j++];
      if (left_out == 1) continue;
    }
    if (left_in == 1 && left_out == 1) break;
    const std::string name = count == 0 ? "b" : fmt::format("i{}", count);
    const std::int64_t big = std::max(left_in, left_out), small = std::min(left_in, left_out);
    // The outer factor of the larger one must be the whole of the smaller one.
    if (big % small == 0) {
      ++count;
      sizes.emplace_back(name, small);
      in[i - 1].push_back(name);
      out[j - 1].push_back(name);
      left_in /= small;
      left_out /= small;
      continue;
    }
    // Opaque stretch: take dimensions until both sides hold the same number of elements.
    const std::size_t first_in = i - 1, first_out = j - 1;
    std::int64_t held_in = left_in, held_out = left_out;
    while (held_in != held_out) {
      if (held_in < held_out)
        held_in *= from[i++];
      else
        held_out *= to[j++];
    }
    const auto opaque = [&](std::vector<std::vector<std::string>>& side, const Shape& shape, std::size_t first,
                            std::size_t last, std::int64_t first_size, char letter) {
      for (std::size_t d = first; d < last; ++d) {
        const std::int64_t size = d == first ? first_size : shape[d];
        if (size == 1) continue;
        const std::string axis = fmt::format("{}{}", letter, d);
        sizes.emplace_back(axis, size);
        side[d].push_back(axis);
        whole += axis + " ";
      }
    };
    opaque(in, from, first_in, i, left_in, 'u');
    opaque(out, to, first_out, j, left_out, 'v');
    left_in = left_out = 1;
    ++count;
  }
  const auto side = [](const std::vector<std::vector<std::string>>& dims) {
    std::vector<std::string> texts;
    for (const auto& factors : dims)
      texts.push_back(factors.empty() ? "1" : fmt::format("{}", fmt::join(factors, ".")));
    return fmt::format("{}", fmt::join(texts, ","));
  };
  return Declaration{
      .notation = fmt::format("x[{}] -> y[{}]", side(in), side(out)),
      .sizes = std::move(sizes),
      .whole = whole,
      .linear = "x",
      .aliases = "y:x",
      .gradients = {"grad: dy -> dx"},
  };
}

Result<Declaration> transpose(const Attrs& attrs, Inputs inputs) {
  if (inputs.size() != 1) return error("transpose: takes 1 input, not {}", inputs.size());
  const std::vector<std::string> names = axis_names_for_rank(inputs[0].shape.size());
  const std::vector<std::int64_t> perm = attrs.integers("perm", {});
  std::vector<std::int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int64_t> expected(names.size());
  std::iota(expected.begin(), expected.end(), 0);
  if (sorted != expected)
    return error("transpose: perm=[{}] does not permute {} dimensions", fmt::join(perm, ","), names.size());
  std::vector<std::string> out;
  for (std::int64_t d : perm) out.push_back(names[static_cast<std::size_t>(d)]);
  return Declaration{
      .notation = fmt::format("x[{}] -> y[{}]", fmt::join(names, ","), fmt::join(out, ",")),
      .linear = "x",
      .aliases = "y:x",  // a view with other strides; the consumer reads through them
      .gradients = {"grad: dy -> dx"},
  };
}

Result<Declaration> expand(const Attrs& attrs, Inputs inputs) {
  if (inputs.size() != 1) return error("expand: takes 1 input, not {}", inputs.size());
  WEFT_TRY(const Along shape, along("expand", attrs, inputs[0]));
  const std::int64_t times = attrs.integer("times", 0);
  if (times <= 0) return error("expand: times={} must be positive", times);
  std::vector<std::string> in = shape.names, out = shape.names;
  in[shape.dim] = inputs[0].shape[shape.dim] == 1 ? "1" : "p";
  out[shape.dim] = inputs[0].shape[shape.dim] == 1 ? "r" : "r.p";
  return Declaration{
      // The dimension is repeated as a whole, `times` over: index = r·P + p.
      .notation = fmt::format("x[{}] -> y[{}]", fmt::join(in, ","), fmt::join(out, ",")),
      .sizes = {{"r", times}},
      .linear = "x",
      .aliases = "y:x",
      .gradients = {"grad: dy -> dx"},
  };
}

const OpEntry kOperators[] = {
    // outer=n: the dimension is n blocks and each block is joined, cut or sliced (packed heads).
    {OpKind::Concat, "concat", "dim:int outer:int", concat},
    {OpKind::Split, "split", "dim:int outer:int sizes:ints", split},
    {OpKind::Slice, "slice", "dim:int begin:int end:int step:int", slice},
    {OpKind::Pad, "pad", "dim:int low:int high:int", pad},
    {OpKind::Reshape, "reshape", "shape:ints", reshape},
    {OpKind::Transpose, "transpose", "perm:ints", transpose},
    {OpKind::Expand, "expand", "dim:int times:int", expand},
};

}  // namespace

std::span<const OpEntry> movement_operators() { return kOperators; }

}  // namespace weft
