#include "layout/mesh.h"

#include <algorithm>

#include "base/checked.h"

namespace weft {

Result<Mesh> Mesh::make(std::vector<MeshAxis> axes, std::vector<DeviceId> devices) {
  if (axes.size() > kMaxMeshAxes) return error("a mesh has at most {} axes, not {}", kMaxMeshAxes, axes.size());
  std::int64_t product = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].size <= 0) return error("mesh axis {} has size {}", axes[i].name, axes[i].size);
    for (std::size_t j = 0; j < i; ++j)
      if (axes[j].name == axes[i].name) return error("mesh axis {} is named twice", axes[i].name);
    const auto next = checked_mul(product, axes[i].size);
    if (!next) return error("the mesh overflows");
    product = *next;
  }
  if (product != static_cast<std::int64_t>(devices.size()))
    return error("a mesh of {} positions needs as many devices, not {}", product, devices.size());
  Mesh mesh;
  mesh.sorted_.reserve(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) mesh.sorted_.emplace_back(devices[i], static_cast<int>(i));
  std::sort(mesh.sorted_.begin(), mesh.sorted_.end());
  for (std::size_t i = 1; i < mesh.sorted_.size(); ++i)
    if (mesh.sorted_[i].first == mesh.sorted_[i - 1].first)
      return error("device {} is in the mesh twice", mesh.sorted_[i].first.index());
  mesh.stride_.resize(axes.size());
  int stride = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    mesh.stride_[i] = stride;
    stride *= axes[i].size;
  }
  mesh.axes_ = std::move(axes);
  mesh.devices_ = std::move(devices);
  return mesh;
}

int Mesh::axis_named(std::string_view name) const {
  for (std::size_t i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == name) return static_cast<int>(i);
  return -1;
}

int Mesh::position_of(DeviceId device) const {
  const auto at = std::lower_bound(sorted_.begin(), sorted_.end(), std::pair(device, 0));
  return at != sorted_.end() && at->first == device ? at->second : -1;
}

int Mesh::group_leader(int position, MeshAxes along) const {
  for (int axis = 0; axis < static_cast<int>(axes_.size()); ++axis)
    if (along >> axis & 1u) position = moved(position, axis, 0);
  return position;
}

int Mesh::group_size(MeshAxes along) const {
  int size = 1;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    if (along >> axis & 1u) size *= axes_[axis].size;
  return size;
}

std::string Mesh::names_of(MeshAxes axes) const {
  std::string names;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    if (axes >> axis & 1u) names += (names.empty() ? "" : ",") + axes_[axis].name;
  return names;
}

std::vector<int> Mesh::group(int position, MeshAxes along) const {
  std::vector<int> members = {group_leader(position, along)};
  for (int axis = 0; axis < static_cast<int>(axes_.size()); ++axis) {
    if ((along >> axis & 1u) == 0) continue;
    std::vector<int> next;
    next.reserve(members.size() * static_cast<std::size_t>(axes_[static_cast<std::size_t>(axis)].size));
    for (int member : members)
      for (int coordinate_there = 0; coordinate_there < axes_[static_cast<std::size_t>(axis)].size; ++coordinate_there)
        next.push_back(moved(member, axis, coordinate_there));
    members = std::move(next);
  }
  return members;
}

}  // namespace weft
