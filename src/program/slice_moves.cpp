#include "program/slice_moves.h"

#include <algorithm>

#include "base/check.h"

namespace weft {
namespace {

// The mesh axes that cut a dimension, major first, and one position for each combination of their coordinates.
struct Parts {
  std::vector<int> axes;
  std::vector<int> position;  // by part: any device that holds it
};

Parts parts_of(const DimLayout& dim, const Mesh& mesh) {
  Parts parts{{}, {0}};
  for (const Factor& factor : dim)
    for (const Cut& cut : factor.cuts) {
      parts.axes.push_back(cut.mesh_axis);
      std::vector<int> next;
      for (int position : parts.position)
        for (int c = 0; c < mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size; ++c)
          next.push_back(mesh.moved(position, cut.mesh_axis, c));
      parts.position = std::move(next);
    }
  return parts;
}

struct Overlap {
  int part = 0;  // of the sender
  std::int64_t length = 0;
};

// For every part of the receiver, the parts of the sender that it overlaps.
std::vector<std::vector<Overlap>> overlaps(const DimLayout& from, const Mesh& from_mesh, const Parts& senders,
                                           const DimLayout& to, const Mesh& to_mesh, const Parts& receivers) {
  struct Held {
    Range range;
    int part;
  };
  std::vector<Held> held;
  for (std::size_t part = 0; part < senders.position.size(); ++part)
    for (const Range& range : held_ranges(from, from_mesh, senders.position[part]))
      held.push_back({range, static_cast<int>(part)});
  std::sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.range.begin < b.range.begin; });
  std::vector<std::vector<Overlap>> result(receivers.position.size());
  for (std::size_t part = 0; part < receivers.position.size(); ++part) {
    std::vector<Overlap>& list = result[part];
    for (const Range& range : held_ranges(to, to_mesh, receivers.position[part])) {
      auto it = std::upper_bound(held.begin(), held.end(), range.begin,
                                 [](std::int64_t at, const Held& each) { return at < each.range.end; });
      for (; it != held.end() && it->range.begin < range.end; ++it) {
        const std::int64_t length = std::min(it->range.end, range.end) - std::max(it->range.begin, range.begin);
        if (length > 0) list.push_back({it->part, length});
      }
    }
    std::sort(list.begin(), list.end(), [](const Overlap& a, const Overlap& b) { return a.part < b.part; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (kept > 0 && list[kept - 1].part == list[i].part)
        list[kept - 1].length += list[i].length;
      else
        list[kept++] = list[i];
    }
    list.resize(kept);
  }
  return result;
}

int part_at(const Parts& parts, const Mesh& mesh, int position) {
  int part = 0;
  for (int axis : parts.axes)
    part = part * mesh.axes()[static_cast<std::size_t>(axis)].size + mesh.coordinate(position, axis);
  return part;
}

}  // namespace

std::vector<SliceMove> slice_moves(const Layout& from, const Mesh& from_mesh, const Layout& to, const Mesh& to_mesh) {
  WEFT_CHECK(from.dims.size() == to.dims.size());
  std::vector<Parts> senders, receivers;
  std::vector<std::vector<std::vector<Overlap>>> by_dim;
  MeshAxes cut_axes = 0;
  for (std::size_t d = 0; d < from.dims.size(); ++d) {
    senders.push_back(parts_of(from.dims[d], from_mesh));
    receivers.push_back(parts_of(to.dims[d], to_mesh));
    by_dim.push_back(overlaps(from.dims[d], from_mesh, senders[d], to.dims[d], to_mesh, receivers[d]));
    for (int axis : senders[d].axes) cut_axes |= MeshAxes{1} << axis;
  }
  const auto axes = static_cast<int>(from_mesh.axes().size());
  std::vector<SliceMove> moves;
  for (int receiver = 0; receiver < to_mesh.size(); ++receiver) {
    const int self = from_mesh.position_of(to_mesh.devices()[static_cast<std::size_t>(receiver)]);
    // Among holders of the same part, the one with the receiver's own coordinates, modulo the size of each axis.
    int base = 0;
    for (int axis = 0; axis < axes; ++axis) {
      if (cut_axes >> axis & 1u) continue;
      const int size = from_mesh.axes()[static_cast<std::size_t>(axis)].size;
      const int like = axis < static_cast<int>(to_mesh.axes().size()) ? to_mesh.coordinate(receiver, axis) : receiver;
      base = from_mesh.moved(base, axis, like % size);
    }
    struct Piece {
      int position;
      std::int64_t elements;
      bool own;
    };
    std::vector<Piece> pieces = {{base, 1, self >= 0}};
    for (std::size_t d = 0; d < by_dim.size(); ++d) {
      std::vector<Piece> next;
      for (const Piece& piece : pieces)
        for (const Overlap& overlap : by_dim[d][static_cast<std::size_t>(part_at(receivers[d], to_mesh, receiver))]) {
          Piece part{piece.position, piece.elements * overlap.length,
                     piece.own && part_at(senders[d], from_mesh, self) == overlap.part};
          const int holder = senders[d].position[static_cast<std::size_t>(overlap.part)];
          for (int axis : senders[d].axes)
            part.position = from_mesh.moved(part.position, axis, from_mesh.coordinate(holder, axis));
          next.push_back(part);
        }
      pieces = std::move(next);
    }
    for (const Piece& piece : pieces)
      if (piece.elements > 0) moves.push_back({piece.own ? self : piece.position, receiver, piece.elements});
  }
  return moves;
}

}  // namespace weft
