// Iteration axes: the one description from which shapes, FLOPs, splits, layouts and backward operators follow.
//
// An operator iterates over named axes; each dimension of each operand is indexed by a *product* of axes, outer first
// (`g.r.d`: index = (g·R + r)·D + d), or by a *window* (`h~kh`: index = stride·h + dilation·kh − pad), or has size 1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// What splitting the axis does (FlexFlow's SOAP, plus the two it lacks).
enum class AxisKind : std::uint8_t {
  Sample,     // independent samples: weights replicate, their gradients become partial sums
  Attribute,  // a dimension of the data that indexes no weight
  Parameter,  // indexes a weight and the output: the weight is split
  Reduction,  // indexes no output: each shard yields a partial result
  Whole       // cannot be split: kernel windows, normalised dimensions, packed components
};

std::string_view name_of(AxisKind kind);

struct Axis {
  std::string name;
  std::int64_t size = 1;
  AxisKind kind = AxisKind::Attribute;
  std::int64_t granule = 1;  // shards are multiples of this many elements (a head, a tile)

  bool operator==(const Axis&) const = default;
};

// A set of an operator's axes (operators have fewer than 64).
class AxisSet {
 public:
  AxisSet() = default;
  void insert(int axis) { bits_ |= std::uint64_t{1} << axis; }
  bool contains(int axis) const { return (bits_ >> axis & 1u) != 0; }
  bool empty() const { return bits_ == 0; }
  AxisSet operator|(AxisSet other) const { return AxisSet(bits_ | other.bits_); }
  bool operator==(const AxisSet&) const = default;

 private:
  explicit AxisSet(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_ = 0;
};
inline constexpr int kMaxAxes = 64;

// index = stride·axis + dilation·kernel − pad_low, of a dimension padded by pad_low and pad_high.
struct Window {
  int kernel = -1;  // the kernel axis; −1: the dimension has no window
  std::int64_t stride = 1, dilation = 1, pad_low = 0, pad_high = 0;

  bool operator==(const Window&) const = default;
};

// How one dimension of an operand is indexed.
struct DimIndex {
  std::vector<int> factors;  // axes, outer first; none: the dimension has size 1
  Window window;             // with a window there is exactly one factor
  std::int64_t size = 1;

  bool windowed() const { return window.kernel >= 0; }
  bool operator==(const DimIndex&) const = default;
};

// A part of an axis: seen as `outer` blocks, the positions [begin, end) of every block.
// outer = 1 is a contiguous range; outer > 1 is a strided shard (what splitting an inner factor of a dimension gives).
struct AxisSlice {
  std::int64_t outer = 1, begin = 0, end = 0;

  std::int64_t size() const { return outer * (end - begin); }
  bool operator==(const AxisSlice&) const = default;
};

inline AxisSlice whole_axis(const Axis& axis) { return {1, 0, axis.size}; }

// The position in the axis of the slice's local-th element, for an axis of `axis_size`.
inline std::int64_t global_position(const AxisSlice& slice, std::int64_t axis_size, std::int64_t local) {
  const std::int64_t width = slice.end - slice.begin;
  return local / width * (axis_size / slice.outer) + slice.begin + local % width;
}

// Cuts an axis into `parts` slices as even as its granule allows (the first ones larger by a granule).
std::vector<AxisSlice> split_evenly(const Axis& axis, int parts, std::int64_t outer = 1);
// Cuts an axis into slices of the given sizes per block, which must sum to size/outer.
std::vector<AxisSlice> split_by_sizes(const Axis& axis, const std::vector<std::int64_t>& sizes, std::int64_t outer = 1);

}  // namespace weft
