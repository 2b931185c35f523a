#include "layout/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/checked.h"

namespace weft {
namespace {

int degree(const Mesh& mesh, int axis) { return mesh.axes()[static_cast<std::size_t>(axis)].size; }

std::int64_t units_of(const Cut& cut, const Mesh& mesh) {
  return weft::units_of(cut.shares, degree(mesh, cut.mesh_axis));
}
std::int64_t largest_share(const Cut& cut) {
  return cut.shares.empty() ? 1 : *std::max_element(cut.shares.begin(), cut.shares.end());
}

// Gives shares to the even cuts of an operator's axis that do not divide what they cut.
void settle_even_cuts(Factor& factor, const Mesh& mesh) {
  std::int64_t unit = factor.size;  // every part so far is a multiple of this many elements
  for (Cut& cut : factor.cuts) {
    const int parts = degree(mesh, cut.mesh_axis);
    if (cut.shares.empty() && unit % parts != 0)
      cut.shares = reduced(nearest_shares(unit, 1, Shares(static_cast<std::size_t>(parts), 1)));
    unit /= units_of(cut, mesh);
  }
}

bool has_halo(const Factor& factor) {
  return std::any_of(factor.cuts.begin(), factor.cuts.end(),
                     [](const Cut& cut) { return cut.halo_low != 0 || cut.halo_high != 0 || cut.halo_sum; });
}

bool has_halo(const Layout& layout) {
  return std::any_of(layout.dims.begin(), layout.dims.end(), [](const DimLayout& dim) {
    return std::any_of(dim.begin(), dim.end(), [](const Factor& factor) { return has_halo(factor); });
  });
}

std::int64_t largest_part(const Factor& factor, const Mesh& mesh) {
  std::int64_t part = factor.size;
  for (const Cut& cut : factor.cuts) part = part / units_of(cut, mesh) * largest_share(cut);
  return part;
}

// Removes the cuts by mesh axes of one device and reduces shares.
void simplify_cuts(Factor& factor, const Mesh& mesh) {
  std::erase_if(factor.cuts, [&](const Cut& cut) { return degree(mesh, cut.mesh_axis) == 1; });
  for (Cut& cut : factor.cuts)
    if (!cut.shares.empty()) cut.shares = reduced(std::move(cut.shares));
}

void canonicalize(DimLayout& dim, const Mesh& mesh) {
  DimLayout merged;
  for (Factor& factor : dim) {
    simplify_cuts(factor, mesh);
    if (factor.size == 1 && factor.cuts.empty()) continue;
    if (!merged.empty() && !has_halo(merged.back())) {
      Factor& last = merged.back();
      if (factor.cuts.empty()) {  // whole blocks: they belong to the part of the outer factor
        last.size *= factor.size;
        continue;
      }
      // Each device has one block of the outer factor: a cut inside the block cuts that device's part again.
      if (!last.cuts.empty() && largest_part(last, mesh) == 1) {
        last.size *= factor.size;
        last.cuts.insert(last.cuts.end(), factor.cuts.begin(), factor.cuts.end());
        continue;
      }
    }
    merged.push_back(std::move(factor));
  }
  dim = std::move(merged);
}

// The part of a factor at a position, [begin, end), without halos.
Range own_range(const Factor& factor, const Mesh& mesh, int position) {
  Range range{0, factor.size};
  for (const Cut& cut : factor.cuts) {
    const int parts = degree(mesh, cut.mesh_axis);
    const int part = (mesh.coordinate(position, cut.mesh_axis) + parts - cut.rotate % parts) % parts;
    const std::int64_t unit = (range.end - range.begin) / units_of(cut, mesh);
    if (cut.shares.empty()) {
      range.begin += part * unit;
      range.end = range.begin + unit;
    } else {
      for (int i = 0; i < part; ++i) range.begin += cut.shares[static_cast<std::size_t>(i)] * unit;
      range.end = range.begin + cut.shares[static_cast<std::size_t>(part)] * unit;
    }
  }
  return range;
}

Range held_range(const Factor& factor, const Mesh& mesh, int position) {
  Range range = own_range(factor, mesh, position);
  if (range.begin == range.end) return range;
  for (const Cut& cut : factor.cuts) {
    range.begin = std::max<std::int64_t>(0, range.begin - cut.halo_low);
    range.end = std::min(factor.size, range.end + cut.halo_high);
  }
  return range;
}

// Shares of a windowed dimension: a part begins at stride · its first window; the last part takes the rest.
Shares owner_shares(const DimIndex& dim, const Axis& axis, const Cut& cut, int parts) {
  Shares windows = cut.shares;
  for (std::int64_t& share : windows) share *= axis.size / weft::units_of(cut.shares, parts);
  if (windows.empty())
    for (const AxisSlice& slice : split_evenly(axis, parts)) windows.push_back(slice.size());
  Shares sizes;
  std::int64_t first_window = 0, begin = 0;
  for (int part = 0; part < parts; ++part) {
    first_window += windows[static_cast<std::size_t>(part)];
    const std::int64_t end = part + 1 == parts ? dim.size : std::min(dim.size, first_window * dim.window.stride);
    sizes.push_back(end - begin);
    begin = end;
  }
  return reduced(std::move(sizes));
}

}  // namespace

Shares reduced(Shares shares) {
  std::int64_t divisor = 0;
  for (std::int64_t share : shares) divisor = std::gcd(divisor, share);
  if (divisor > 1)
    for (std::int64_t& share : shares) share /= divisor;
  if (std::adjacent_find(shares.begin(), shares.end(), std::not_equal_to<>()) == shares.end()) shares.clear();
  return shares;
}

std::int64_t units_of(const Shares& shares, int parts) {
  return shares.empty() ? parts : std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

Shares nearest_shares(std::int64_t size, std::int64_t granule, const Shares& ratio) {
  const std::int64_t units = size / granule, sum = std::accumulate(ratio.begin(), ratio.end(), std::int64_t{0});
  Shares parts;
  std::vector<std::pair<std::int64_t, std::size_t>> remainders;
  std::int64_t given = 0;
  for (std::size_t i = 0; i < ratio.size(); ++i) {
    // units · ratio / sum, without the overflow of units · ratio.
    const std::int64_t rest = units % sum * ratio[i];
    parts.push_back(units / sum * ratio[i] + rest / sum);
    given += parts.back();
    remainders.emplace_back(-(rest % sum), i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (std::int64_t left = units - given; left > 0; --left)
    ++parts[remainders[static_cast<std::size_t>(left - 1)].second];
  for (std::int64_t& part : parts) part *= granule;
  parts.back() += size % granule;
  return parts;
}

Layout replicated(MeshId id, const Mesh& mesh, const Shape& shape) {
  Layout layout{id, {}, PartialAxes(mesh.axes().size()), 0};
  for (std::int64_t extent : shape) layout.dims.push_back({Factor{extent, {}}});
  canonicalize(layout, mesh);
  return layout;
}

void canonicalize(Layout& layout, const Mesh& mesh) {
  for (DimLayout& dim : layout.dims) canonicalize(dim, mesh);
  for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
    if (mesh.axes()[axis].size == 1) {
      layout.partial[axis] = std::nullopt;
      layout.local &= ~(MeshAxes{1} << axis);
    }
}

Layout operand_layout(const Signature& signature, bool output, std::size_t index, const OpSharding& sharding,
                      const Mesh& mesh) {
  const Operand& operand = output ? signature.outputs[index] : signature.inputs[index];
  const AxisSet indexed = operand.axes();
  Layout layout{sharding.mesh, {}, PartialAxes(mesh.axes().size()), 0};
  for (const DimIndex& dim : operand.dims) {
    DimLayout factors;
    factors.reserve(dim.factors.size());
    for (int a : dim.factors) {
      const Axis& axis = signature.axes[static_cast<std::size_t>(a)];
      const std::vector<Cut>& cuts = sharding.axes[static_cast<std::size_t>(a)];
      Factor factor{axis.size, cuts};
      if (dim.windowed()) {
        factor.size = dim.size;
        if (!cuts.empty()) {
          WEFT_CHECK(cuts.size() == 1, "a windowed axis is cut by one mesh axis");
          const Placement placement = *operand_split(signature, operand, a);
          factor.cuts = {Cut{cuts[0].mesh_axis, owner_shares(dim, axis, cuts[0], degree(mesh, cuts[0].mesh_axis)),
                             placement.halo_low, placement.halo_high, output}};
        }
      } else {
        const std::int64_t outer = sharding.outer.empty() ? 1 : sharding.outer[static_cast<std::size_t>(a)];
        if (outer > 1) {
          factors.push_back({outer, {}});
          factor.size /= outer;
        }
        settle_even_cuts(factor, mesh);
      }
      factors.push_back(std::move(factor));
    }
    if (factors.empty()) factors.push_back({dim.size, {}});
    layout.dims.push_back(std::move(factors));
  }
  for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
    if (sharding.partial >> axis & 1u) {
      const std::uint64_t mask = sharding.partial_inputs;
      if (output || (index < 64 && (mask >> index & 1u) != 0)) layout.partial[axis] = Reducer::Sum;
    }
  const MeshAxes splits = split_axes(layout);
  for (std::size_t a = 0; a < sharding.axes.size(); ++a) {
    if (indexed.contains(static_cast<int>(a))) continue;
    for (const Cut& cut : sharding.axes[a]) {
      if (splits >> cut.mesh_axis & 1u) continue;  // a ring: the devices of the axis have different parts
      if (operand.local.contains(static_cast<int>(a)))
        layout.local |= MeshAxes{1} << cut.mesh_axis;
      else if (output)
        layout.partial[static_cast<std::size_t>(cut.mesh_axis)] = operand.reducer;
    }
  }
  canonicalize(layout, mesh);
  return layout;
}

AxisSlices axis_slices(const Signature& signature, const OpSharding& sharding, const Mesh& mesh, int position) {
  AxisSlices slices = whole_axes(signature);
  for (std::size_t a = 0; a < sharding.axes.size(); ++a) {
    if (sharding.axes[a].empty()) continue;
    const std::int64_t outer = sharding.outer.empty() ? 1 : sharding.outer[a];
    Factor factor{signature.axes[a].size / outer, sharding.axes[a]};
    settle_even_cuts(factor, mesh);
    const Range range = own_range(factor, mesh, position);
    slices[a] = {outer, range.begin, range.end};
  }
  return slices;
}

Layout without_halos(Layout layout) {
  if (!has_halo(std::as_const(layout))) return layout;
  for (DimLayout& dim : layout.dims)
    for (Factor& factor : dim)
      for (Cut& cut : factor.cuts) cut = Cut{.mesh_axis = cut.mesh_axis, .shares = cut.shares, .rotate = cut.rotate};
  return layout;
}

bool is_partial(const Layout& layout) {
  return std::any_of(layout.partial.begin(), layout.partial.end(),
                     [](const auto& reducer) { return reducer.has_value(); });
}

bool is_rotated(const Layout& layout) {
  for (const DimLayout& dim : layout.dims)
    for (const Factor& factor : dim)
      for (const Cut& cut : factor.cuts)
        if (cut.rotate != 0) return true;
  return false;
}

Layout rotated(Layout layout, int mesh_axis, int steps, const Mesh& mesh) {
  for (DimLayout& dim : layout.dims)
    for (Factor& factor : dim)
      for (Cut& cut : factor.cuts)
        if (cut.mesh_axis == mesh_axis) cut.rotate = (cut.rotate + steps) % degree(mesh, mesh_axis);
  return layout;
}

MeshAxes split_axes(const Layout& layout) {
  MeshAxes axes = 0;
  for (const DimLayout& dim : layout.dims)
    for (const Factor& factor : dim)
      for (const Cut& cut : factor.cuts) axes |= MeshAxes{1} << cut.mesh_axis;
  return axes;
}

std::vector<Range> held_ranges(const DimLayout& dim, const Mesh& mesh, int position) {
  std::vector<Range> ranges = {{0, 1}};
  for (const Factor& factor : dim) {
    const Range part = held_range(factor, mesh, position);
    std::vector<Range> next;
    for (const Range& range : ranges) {
      if (part.begin == 0 && part.end == factor.size) {
        next.push_back({range.begin * factor.size, range.end * factor.size});
        continue;
      }
      for (std::int64_t block = range.begin; block < range.end; ++block)
        if (part.begin < part.end) next.push_back({block * factor.size + part.begin, block * factor.size + part.end});
    }
    ranges = std::move(next);
  }
  return ranges;
}

std::int64_t largest_local_elements(const Layout& layout, const Mesh& mesh) {
  std::int64_t elements = 1;
  for (const DimLayout& dim : layout.dims)
    for (const Factor& factor : dim) {
      std::int64_t part = factor.size;
      for (const Cut& cut : factor.cuts) {
        const std::int64_t own = part / units_of(cut, mesh) * largest_share(cut);
        part = std::min(part, own + cut.halo_low + cut.halo_high);
      }
      elements *= part;
    }
  return elements;
}

Shape local_shape(const Layout& layout, const Mesh& mesh, int position) {
  Shape shape;
  shape.reserve(layout.dims.size());
  for (const DimLayout& dim : layout.dims) {
    std::int64_t extent = 1;
    for (const Factor& factor : dim) {
      const Range part = held_range(factor, mesh, position);
      extent *= part.end - part.begin;
    }
    shape.push_back(extent);
  }
  return shape;
}

std::string print(const std::vector<Cut>& cuts, const Mesh& mesh) {
  std::string text;
  for (const Cut& cut : cuts) {
    if (!text.empty()) text += ',';
    text += mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].name;
    if (!cut.shares.empty()) text += fmt::format("({})", fmt::join(cut.shares, "+"));
    if (cut.halo_low || cut.halo_high || cut.halo_sum)
      text += fmt::format("{}-{}+{}", cut.halo_sum ? "Σ" : "", cut.halo_low, cut.halo_high);
    if (cut.rotate) text += fmt::format(">{}", cut.rotate);
  }
  return text;
}

std::string print(const Layout& layout, const Mesh& mesh) {
  std::string text;
  for (const DimLayout& dim : layout.dims) {
    text += '[';
    for (std::size_t f = 0; f < dim.size(); ++f) {
      text += fmt::format("{}{}", f > 0 ? " " : "", dim[f].size);
      if (!dim[f].cuts.empty()) text += ":" + print(dim[f].cuts, mesh);
    }
    if (dim.empty()) text += '1';
    text += ']';
  }
  for (std::size_t axis = 0; axis < layout.partial.size(); ++axis) {
    const std::string& name = mesh.axes()[axis].name;
    if (layout.partial[axis])
      text += *layout.partial[axis] == Reducer::Sum ? fmt::format(" P({})", name)
                                                    : fmt::format(" P({},{})", name, name_of(*layout.partial[axis]));
    if (layout.local >> axis & 1u) text += fmt::format(" L({})", name);
  }
  return text;
}

namespace {

// Parses tokens at the front of a text.
class Reader {
 public:
  Reader(std::string_view& text, const Mesh& mesh) : text_(text), mesh_(mesh) {}

  bool take(std::string_view word) {
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  bool at(std::string_view word) const { return text_.starts_with(word); }
  Error expected(std::string_view what) const {
    std::string found(text_.substr(0, std::min<std::size_t>(text_.find('\n'), 16)));
    for (char& c : found)
      if (c < ' ' || c > '~') c = '?';
    return error("expected {}, found {}", what, found.empty() ? "the end of the line" : "'" + found + "'");
  }
  Result<std::int64_t> number() {
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (status != std::errc() || value < 0) return expected("a number below 2^63");
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return value;
  }
  // The longest axis name that matches here.
  Result<int> axis() {
    int best = -1;
    std::size_t length = 0;
    for (std::size_t i = 0; i < mesh_.axes().size(); ++i)
      if (const std::string& name = mesh_.axes()[i].name; name.size() > length && text_.starts_with(name)) {
        best = static_cast<int>(i);
        length = name.size();
      }
    if (best < 0) {
      std::vector<std::string_view> names;
      for (const MeshAxis& each : mesh_.axes()) names.push_back(each.name);
      return expected(fmt::format("a mesh axis ({})", fmt::join(names, ", ")));
    }
    text_.remove_prefix(length);
    return best;
  }
  Result<std::vector<Cut>> cuts() {
    std::vector<Cut> list;
    do {
      Cut cut;
      WEFT_TRY(cut.mesh_axis, axis());
      if (take("(")) {
        do {
          WEFT_TRY(const std::int64_t share, number());
          cut.shares.push_back(share);
        } while (take("+"));
        if (!take(")")) return expected("')' after the shares of the parts");
      }
      cut.halo_sum = take("Σ");
      if (take("-")) {
        WEFT_TRY(cut.halo_low, number());
        if (!take("+")) return expected("a halo such as -1+1");
        WEFT_TRY(cut.halo_high, number());
      } else if (cut.halo_sum) {
        return expected("a halo such as -1+1");
      }
      if (take(">")) {
        WEFT_TRY(const std::int64_t steps, number());
        const int parts = mesh_.axes()[static_cast<std::size_t>(cut.mesh_axis)].size;
        if (steps >= parts) return error("handed on {} times around a ring of {}", steps, parts);
        cut.rotate = static_cast<int>(steps);
      }
      list.push_back(std::move(cut));
    } while (take(","));
    return list;
  }
  Result<DimLayout> dim() {
    DimLayout factors;
    do {
      Factor factor;
      WEFT_TRY(factor.size, number());
      if (take(":")) {
        WEFT_TRY(factor.cuts, cuts());
      }
      if (factor.size != 1 || !factor.cuts.empty()) factors.push_back(std::move(factor));
    } while (take(" "));
    if (!take("]")) return expected("']' or a factor such as ' 512:tp'");
    return factors;
  }

 private:
  std::string_view& text_;
  const Mesh& mesh_;
};

}  // namespace

Result<std::vector<Cut>> parse_cuts(std::string_view& text, const Mesh& mesh) { return Reader(text, mesh).cuts(); }

Result<Layout> parse_layout(std::string_view& text, MeshId id, const Mesh& mesh) {
  Reader in(text, mesh);
  Layout layout{id, {}, PartialAxes(mesh.axes().size()), 0};
  while (in.take("[")) {
    WEFT_TRY(DimLayout dim, in.dim());
    layout.dims.push_back(std::move(dim));
  }
  while (in.at(" P(") || in.at(" L(") || (layout.dims.empty() && (in.at("P(") || in.at("L(")))) {
    in.take(" ");
    const bool partial = in.take("P(");
    if (!partial) in.take("L(");
    WEFT_TRY(const int axis, in.axis());
    if (!partial) layout.local |= MeshAxes{1} << axis;
    if (partial) {
      std::optional<Reducer>& reducer = layout.partial[static_cast<std::size_t>(axis)];
      reducer = Reducer::Sum;
      if (in.take(",")) {
        reducer = std::nullopt;
        for (Reducer each : {Reducer::Sum, Reducer::Max, Reducer::LogSumExp, Reducer::SoftmaxMerge})
          if (!reducer && in.take(name_of(each))) reducer = each;
        if (!reducer) return in.expected("a reducer: sum, max, logsumexp or softmax-merge");
      }
    }
    if (!in.take(")")) return in.expected("')' after the mesh axis");
  }
  return layout;
}

}  // namespace weft
