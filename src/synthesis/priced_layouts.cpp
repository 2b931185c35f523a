#include "synthesis/priced_layouts.h"

#include <algorithm>

#include "hybrid/group_cost.h"

namespace weft {

LayoutNumber PricedLayouts::number(Layout layout, DType dtype) {
  const auto [found, fresh] = numbers_.try_emplace(print(layout, mesh_) + std::string(name_of(dtype)), layouts_.size());
  if (fresh) layouts_.emplace_back(std::move(layout), dtype);
  return found->second;
}

Picoseconds PricedLayouts::moved(LayoutNumber from, LayoutNumber to) {
  if (from == to) return 0;
  const auto [found, fresh] = moves_.try_emplace(std::uint64_t{from} << 32 | to, 0);
  if (fresh) found->second = price(layouts_[from].first, layouts_[to].first, layouts_[from].second, false);
  return found->second;
}

Picoseconds PricedLayouts::price(const Layout& from, const Layout& to, DType dtype, bool bucketed) {
  if (from == to) return 0;
  const Result<std::vector<ReshardStep>> steps = reshard(from, to, mesh_);
  if (!steps.ok()) return kNever;
  Picoseconds total = 0;
  const Layout* before = &from;
  for (const ReshardStep& step : *steps) {
    if (step.collective != Collective::Slice) {
      Picoseconds time = steps_.time_of(step, *before, mesh_, dtype);
      if (const Picoseconds alone = std::min(time, latency(step)); slowed(step) > 1)
        time = alone + static_cast<Picoseconds>(static_cast<double>(time - alone) * slowed(step));
      if (bucketed) {
        const std::int64_t bytes =
            bytes_of(dtype, std::max(largest_local_elements(*before, mesh_), largest_local_elements(step.to, mesh_)));
        const double alone =
            bucket_.value == 0 ? 1 : 1 - std::min(1.0, static_cast<double>(bytes) / static_cast<double>(bucket_.value));
        time = std::max<Picoseconds>(0, time - static_cast<Picoseconds>(alone * static_cast<double>(latency(step))));
      }
      total = sum_of(total, time);
    }
    before = &step.to;
  }
  return total;
}

// By how much the links that groups share slow each of them down when all communicate at once: at least 1.
double PricedLayouts::slowed(const ReshardStep& step) {
  const auto [found, fresh] = slowed_.try_emplace({step.collective, step.axes}, 1);
  if (!fresh) return found->second;
  constexpr std::int64_t kLarge = std::int64_t{64} << 20;  // bytes: bandwidth, not latency
  std::vector<Communicator> groups;
  for (int position = 0; position < mesh_.size(); ++position) {
    if (mesh_.group_leader(position, step.axes) != position) continue;
    std::vector<DeviceId> devices;
    for (int member : mesh_.group(position, step.axes))
      devices.push_back(mesh_.devices()[static_cast<std::size_t>(member)]);
    groups.push_back(make_communicator(cluster_, devices, step.collective));
  }
  if (groups.size() < 2) return found->second;
  for (std::size_t own : {std::size_t{0}, groups.size() - 1}) {
    if (groups[own].routes.empty()) continue;
    std::vector<Communicator> others;
    for (std::size_t g = 0; g < groups.size(); ++g)
      if (g != own && !groups[g].routes.empty()) others.push_back(groups[g]);
    const GroupCost together(cluster_, cost_, groups[own], others);
    found->second = std::max(found->second, together.of(cost_, kLarge).spare);
  }
  return found->second;
}

// Of the collective with next to nothing to move.
Picoseconds PricedLayouts::latency(const ReshardStep& step) {
  const auto [found, fresh] = latencies_.try_emplace({step.collective, step.axes}, 0);
  if (!fresh) return found->second;
  const Shape shape = {mesh_.size()};
  Layout whole = replicated(MeshId(0), mesh_, shape), cut = whole, partial = whole;
  for (std::size_t m = 0; m < mesh_.axes().size(); ++m)
    if (step.axes >> m & 1u) {
      cut.dims[0].front().cuts.push_back({static_cast<int>(m)});
      partial.partial[m] = Reducer::Sum;
    }
  canonicalize(cut, mesh_);
  const Layout* from = &whole;
  const Layout* to = &whole;
  if (step.collective == Collective::AllReduce) from = &partial;
  if (step.collective == Collective::ReduceScatter) from = &partial, to = &cut;
  if (step.collective == Collective::AllGather) from = &cut;
  if (from != to)
    found->second = steps_.time_of({step.collective, step.axes, step.reducer, *to}, *from, mesh_, DType::F32);
  return found->second;
}

}  // namespace weft
