#include "cost/step_prices.h"

#include <algorithm>
#include <set>

namespace weft {
namespace {

std::int64_t bytes_moved(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) {
  const std::int64_t from = bytes_of(dtype, largest_local_elements(before, mesh)),
                     to = bytes_of(dtype, largest_local_elements(step.to, mesh));
  switch (step.collective) {
    case Collective::AllToAll:
      return from;
    case Collective::HaloExchange:
      return to - from;
    case Collective::HaloSum:
      return from - to;
    default:
      return std::max(from, to);
  }
}

}  // namespace

const std::vector<Communicator>& StepPrices::communicators(Collective collective, MeshAxes axes,
                                                           const Mesh& mesh) const {
  auto of = std::find_if(known_.begin(), known_.end(), [&](const OfMesh& each) { return each.mesh == mesh; });
  if (of == known_.end()) of = known_.insert(known_.end(), {mesh, {}});
  const auto [found, fresh] = of->communicators.try_emplace({axes, collective});
  if (fresh) {
    for (int position : std::set<int>{mesh.group_leader(0, axes), mesh.group_leader(mesh.size() - 1, axes)}) {
      std::vector<DeviceId> devices;
      for (int member : mesh.group(position, axes)) devices.push_back(mesh.devices()[static_cast<std::size_t>(member)]);
      found->second.push_back(make_communicator(cluster_, devices, collective));
    }
  }
  return found->second;
}

Picoseconds StepPrices::time_of_parts(Collective collective, MeshAxes axes, Parts parts, const PartSizes& bytes,
                                      const Mesh& mesh) const {
  Picoseconds slowest = 0;
  for (const Communicator& communicator : communicators(collective, axes, mesh))
    if (const CommunicateQuery query = query_of_parts(communicator, parts, bytes);
        !communicator.routes.empty() && query.bytes > 0)
      slowest = std::max(slowest, isolated_time(cost_.communicate(query)));
  return slowest;
}

Picoseconds StepPrices::time_of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const {
  const std::lock_guard lock(mutex_);
  if (const Layout* const cut = cut_side(step.collective, before, step.to); cut && has_uneven_parts(*cut, step.axes)) {
    const PartSizes bytes = bytes_of(dtype, part_sizes(*cut, step.axes, mesh));
    const auto time = [&](Parts parts) { return time_of_parts(step.collective, step.axes, parts, bytes, mesh); };
    return uneven_ ? time(*uneven_) : std::min(time(Parts::Padded), time(Parts::Grouped));
  }
  const std::int64_t bytes = bytes_moved(step, before, mesh, dtype);
  Picoseconds slowest = 0;
  for (const Communicator& communicator : communicators(step.collective, step.axes, mesh))
    if (!communicator.routes.empty() && bytes > 0)
      slowest = std::max(slowest, isolated_time(cost_.communicate({.communicator = &communicator, .bytes = bytes})));
  return slowest;
}

double StepPrices::of_parts(Collective collective, MeshAxes axes, Parts parts, const PartSizes& bytes,
                            const Mesh& mesh) const {
  const std::lock_guard lock(mutex_);
  return seconds_of(time_of_parts(collective, axes, parts, bytes, mesh));
}

double StepPrices::of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const {
  return seconds_of(time_of(step, before, mesh, dtype));
}

}  // namespace weft
