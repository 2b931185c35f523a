// The layout of a tensor on a mesh: which part of it each device holds.
//
// Per mesh axis a tensor is replicated, split, partial (every device holds a contribution) or local (every device holds
// a value of its own). A dimension is a product of factors, outer first, each cut by zero or more mesh axes, the major
// one first:
//
//   [4096: tp]            contiguous columns over tp
//   [8] [512: tp]         8 blocks, each cut over tp: a strided shard
//   [1024: dp, tp]        cut over dp, each part again over tp
//   [1024: dp(3+1), tp]   three quarters and one quarter over dp, each part halved over tp
//
// A cut gives its parts shares of what the earlier cuts leave, whatever its size. So the same cut applies to heads, to
// their columns and to every tensor that has them, and cuts nest freely. The sum of the shares (for an even cut, the
// number of parts) must divide what is cut: 1024 into 3+1 and then into 2 works because 4 · 2 divides 1024.
//
// Layouts are kept in one canonical form (factors merged where the cut is the same), so equal layouts compare equal
// however they were made: heads 0…3 of 8 and columns 0…511 of 1024 are the same layout.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/id.h"
#include "base/result.h"
#include "graph/placement.h"
#include "layout/mesh.h"
#include "layout/shared_vec.h"

namespace weft {

using MeshId = Id<struct MeshTag>;

// The share of each part of a cut, by coordinate: 3, 2, 1. They have no common divisor; empty if all are equal.
using Shares = std::vector<std::int64_t>;
Shares reduced(Shares shares);
// The number of equal units that a cut into `parts` distributes by its shares; it must divide what is cut.
std::int64_t units_of(const Shares& shares, int parts);
// The shares of `size` elements, in whole granules, nearest to a ratio: by largest remainder, the first of equals;
// elements beyond the last whole granule go to the last part.
Shares nearest_shares(std::int64_t size, std::int64_t granule, const Shares& ratio);

// One mesh axis cutting a factor, evenly unless there are shares.
struct Cut {
  int mesh_axis = -1;
  Shares shares = {};
  // Elements of the neighbours' parts that are also held (inputs of windows), or contributed to (`halo_sum`, their
  // gradients).
  std::int64_t halo_low = 0, halo_high = 0;
  bool halo_sum = false;
  // The device at coordinate c holds part (c − rotate) mod n: the blocks of ring attention after `rotate` steps.
  int rotate = 0;

  bool operator==(const Cut&) const = default;
};

struct Factor {
  std::int64_t size = 1;
  std::vector<Cut> cuts = {};  // major first

  bool operator==(const Factor&) const = default;
};
using DimLayout = std::vector<Factor>;

// For every axis of a mesh: the reducer that combines the contributions of its devices; none if it is not partial.
class PartialAxes {
 public:
  PartialAxes() = default;
  explicit PartialAxes(std::size_t axes) : size_(static_cast<std::uint8_t>(axes)) { WEFT_CHECK(axes <= kMaxMeshAxes); }

  std::size_t size() const { return size_; }
  auto begin() { return reducers_.begin(); }
  auto end() { return reducers_.begin() + size_; }
  auto begin() const { return reducers_.begin(); }
  auto end() const { return reducers_.begin() + size_; }
  std::optional<Reducer>& operator[](std::size_t axis) { return reducers_[axis]; }
  const std::optional<Reducer>& operator[](std::size_t axis) const { return reducers_[axis]; }

  bool operator==(const PartialAxes& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  std::array<std::optional<Reducer>, kMaxMeshAxes> reducers_;
  std::uint8_t size_ = 0;
};

struct Layout {
  MeshId mesh;
  SharedVec<DimLayout> dims;
  PartialAxes partial;  // mesh axes along which the tensor is partial (and not split)
  MeshAxes local = 0;   // mesh axes along which it is local

  bool operator==(const Layout&) const = default;
};

// Which mesh axes split each axis of an operator, major first; uneven where a cut has shares. An even cut of an axis
// that does not divide is as even as whole elements allow.
//
// A mesh axis that splits two axes (the queries and the keys of attention) makes a ring: the parts of the second axis
// rotate, so that every part of the first is computed with every part of the second (compile/ring.cpp). One step of
// the ring is this sharding with the second axis rotated.
struct OpSharding {
  MeshId mesh;
  SharedVec<std::vector<Cut>> axes;  // by operator axis
  // By operator axis: the number of blocks each of which is cut (a packed gate and value: 2); empty: 1 everywhere.
  SharedVec<std::int64_t> outer = {};
  // Mesh axes along which the inputs of `partial_inputs` (one of the signature's linear groups) are partial sums,
  // passed through.
  MeshAxes partial = 0;
  std::uint64_t partial_inputs = 0;

  bool operator==(const OpSharding&) const = default;
};

Layout replicated(MeshId id, const Mesh& mesh, const Shape& shape);
// The layout in which a sharded operator needs an input or makes an output.
Layout operand_layout(const Signature& signature, bool output, std::size_t operand, const OpSharding& sharding,
                      const Mesh& mesh);
// The part of every axis that the device at `position` executes.
AxisSlices axis_slices(const Signature& signature, const OpSharding& sharding, const Mesh& mesh, int position);
// Merges factors; call after building a layout by hand.
void canonicalize(Layout& layout, const Mesh& mesh);

// The same parts without halos.
Layout without_halos(Layout layout);

bool is_partial(const Layout& layout);
// Whether some cut is rotated around a ring.
bool is_rotated(const Layout& layout);
// The same with the cuts by `mesh_axis` rotated by `steps` more.
Layout rotated(Layout layout, int mesh_axis, int steps, const Mesh& mesh);
// The mesh axes that split the tensor.
MeshAxes split_axes(const Layout& layout);

// Half-open ranges of positions along a dimension, in order: what a device holds. Neighbouring ranges are merged.
struct Range {
  std::int64_t begin = 0, end = 0;

  bool operator==(const Range&) const = default;
};
std::vector<Range> held_ranges(const DimLayout& dim, const Mesh& mesh, int position);
Shape local_shape(const Layout& layout, const Mesh& mesh, int position);
// Elements of the largest local part over the mesh; for cost models and memory.
std::int64_t largest_local_elements(const Layout& layout, const Mesh& mesh);

// Text form, lossless:
//   [128:dp][4096][1024:tp] P(dp)      dimensions, each a product of factors with their cuts; partial sums
//   [8 512:tp] P(dp,max) L(cp)         8 blocks, each cut; another reducer; local
//   [12:h(3+2+1)-1+1]                  uneven parts, one element of each neighbour also held; Σ-1+1: contributed to
//   [1024:cp>1]                        each device holds the part before its own: rotated once around the ring
std::string print(const Layout& layout, const Mesh& mesh);
std::string print(const std::vector<Cut>& cuts, const Mesh& mesh);  // "dp,tp"

// Parses a layout at the front of `text` and removes it from there. Errors name the unexpected text; whether the
// numbers are consistent is not checked.
Result<Layout> parse_layout(std::string_view& text, MeshId id, const Mesh& mesh);
Result<std::vector<Cut>> parse_cuts(std::string_view& text, const Mesh& mesh);

}  // namespace weft
