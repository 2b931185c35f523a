// A device mesh: devices in a grid with named axes, the last axis fastest. Any factorisation of any list of devices.
//
// A *group* along some axes is the set of devices that share the coordinates of all other axes: the members of a
// collective, in row-major order of those axes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_id.h"
#include "base/result.h"

namespace weft {

struct MeshAxis {
  std::string name;
  int size = 1;

  bool operator==(const MeshAxis&) const = default;
};

// A set of mesh axes; bit i stands for axis i.
using MeshAxes = std::uint32_t;
inline constexpr int kMaxMeshAxes = 16;
constexpr MeshAxes axis_set(int axis) { return MeshAxes{1} << axis; }

class Mesh {
 public:
  // The product of the axes' sizes must be the number of devices; names and devices must be different.
  static Result<Mesh> make(std::vector<MeshAxis> axes, std::vector<DeviceId> devices);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  const std::vector<DeviceId>& devices() const { return devices_; }
  int size() const { return static_cast<int>(devices_.size()); }
  int axis_named(std::string_view name) const;  // −1 when there is none

  // Position of a device in the mesh; −1 when it is not a member. Cost: one binary search.
  int position_of(DeviceId device) const;
  int coordinate(int position, int axis) const {
    return position / stride_[static_cast<std::size_t>(axis)] % axes_[static_cast<std::size_t>(axis)].size;
  }
  // The position with one coordinate replaced.
  int moved(int position, int axis, int coordinate_there) const {
    return position + (coordinate_there - coordinate(position, axis)) * stride_[static_cast<std::size_t>(axis)];
  }
  // Positions of the group along `along` that `position` belongs to, in row-major order of those axes.
  std::vector<int> group(int position, MeshAxes along) const;
  // The first member of that group, which identifies it.
  int group_leader(int position, MeshAxes along) const;
  int group_size(MeshAxes along) const;

  // "dp,cp": the names of a set of axes, major first.
  std::string names_of(MeshAxes axes) const;

  bool operator==(const Mesh& other) const { return axes_ == other.axes_ && devices_ == other.devices_; }

 private:
  std::vector<MeshAxis> axes_;
  std::vector<DeviceId> devices_;
  std::vector<int> stride_;
  std::vector<std::pair<DeviceId, int>> sorted_;  // by device, for position_of
};

}  // namespace weft
