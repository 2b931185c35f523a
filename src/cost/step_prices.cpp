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

Picoseconds StepPrices::time_of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const {
  const std::lock_guard lock(mutex_);
  auto of = std::find_if(known_.begin(), known_.end(), [&](const OfMesh& each) { return each.mesh == mesh; });
  if (of == known_.end()) of = known_.insert(known_.end(), {mesh, {}});
  const auto [found, fresh] = of->communicators.try_emplace({step.axes, step.collective});
  if (fresh) {
    for (int position : std::set<int>{mesh.group_leader(0, step.axes), mesh.group_leader(mesh.size() - 1, step.axes)}) {
      std::vector<DeviceId> devices;
      for (int member : mesh.group(position, step.axes))
        devices.push_back(mesh.devices()[static_cast<std::size_t>(member)]);
      found->second.push_back(make_communicator(cluster_, devices, step.collective));
    }
  }
  const std::int64_t bytes = bytes_moved(step, before, mesh, dtype);
  Picoseconds slowest = 0;
  for (const Communicator& communicator : found->second)
    if (!communicator.routes.empty() && bytes > 0)
      slowest = std::max(slowest, isolated_time(cost_.communicate({&communicator, bytes, false})));
  return slowest;
}

double StepPrices::of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const {
  return static_cast<double>(time_of(step, before, mesh, dtype)) * 1e-12;
}

}  // namespace weft
