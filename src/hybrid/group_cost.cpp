#include "hybrid/group_cost.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

// Do all devices of the first node have a NIC of their own?
bool own_nics(const PlanProblem& problem) {
  std::vector<int> rails;
  for (std::int64_t device = 0; device < problem.per_node; ++device)
    rails.push_back(problem.cluster().rail_of(problem.device_at(device)));
  std::sort(rails.begin(), rails.end());
  return std::adjacent_find(rails.begin(), rails.end()) == rails.end();
}

}  // namespace

bool alike(const LinkLoads& one, const LinkLoads& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const DeviceLinkLoad& a, const DeviceLinkLoad& b) {
                      return a.link == b.link && std::abs(a.share - b.share) < 0.01;
                    });
}

Sharing share_links(const LinkLoads& one, const LinkLoads& other) {
  Sharing sharing;
  for (const DeviceLinkLoad& a : one)
    for (const DeviceLinkLoad& b : other) {
      if (a.link != b.link || a.share + b.share <= 1) continue;
      const double of_a = a.share <= 0.5 ? a.share : std::max(0.5, 1 - b.share);
      const double of_b = b.share <= 0.5 ? b.share : std::max(0.5, 1 - a.share);
      sharing.one = std::min(sharing.one, of_a / a.share);
      sharing.other = std::min(sharing.other, of_b / b.share);
    }
  return sharing;
}

GroupCost::GroupCost(const Cluster& cluster, const CostModel& cost, Communicator own,
                     const std::vector<Communicator>& beside)
    : communicator_(std::move(own)), limit_(communicator_.routes.size(), 0), loads_(communicator_.routes.size()) {
  for (std::size_t route = 0; route < communicator_.routes.size(); ++route) {
    std::map<LinkId, std::int64_t> load;
    for (const LinkShare& share : communicator_.routes[route].links) load[share.link] = share.coefficient;
    for (const Communicator& other : beside) {
      if (route >= other.routes.size()) continue;
      for (const LinkShare& share : other.routes[route].links)
        if (const auto found = load.find(share.link); found != load.end()) found->second += share.coefficient;
    }
    for (const auto& [link, coefficient] : load) {
      if (beside.empty()) break;
      const Link described = cluster.link(link);
      if (described.ample) continue;
      const double rate = static_cast<double>(cost.capacity(described)) * static_cast<double>(kOne) /
                          static_cast<double>(std::max<std::int64_t>(1, coefficient));
      if (limit_[route] == 0 || rate < limit_[route]) limit_[route] = rate;
    }
    for (const LinkShare& share : links_of_member(cluster, communicator_, communicator_.routes[route], 0)) {
      const Link described = cluster.link(share.link);
      if (described.ample) continue;
      loads_[route].push_back({share.link, static_cast<double>(load[share.link]) / static_cast<double>(kOne) /
                                               static_cast<double>(cost.capacity(described))});
    }
  }
}

GroupCost::Taken GroupCost::of(const CostModel& cost, std::int64_t bytes) const {
  if (communicator_.routes.empty() || bytes <= 0) return {};
  const CommunicateCost found = cost.communicate(CommunicateQuery{&communicator_, bytes});
  const auto cap = static_cast<double>(found.cap);
  double rate = cap;
  if (const double limit = limit_[found.route]; limit > 0) rate = std::min(rate, limit);
  const double moving = rate > 0 ? static_cast<double>(found.bytes) / rate : 0;
  Taken taken{seconds_of(found.latency) + moving, found.sm_share, found.memory_share, rate > 0 ? cap / rate : 1,
              loads_[found.route]};
  for (DeviceLinkLoad& load : taken.links) load.share *= rate;
  return taken;
}

const GroupCost& GroupCosts::group(Collective collective, const JointShape& shape) {
  const std::lock_guard lock(mutex_);
  const auto [found, fresh] = groups_.try_emplace({collective, shape});
  if (!fresh) return found->second;
  const auto members = [&](std::int64_t first) {
    std::vector<std::int64_t> ranks = {first};
    for (const StridedGroup& axis : shape.axes()) {
      std::vector<std::int64_t> next;
      for (std::int64_t rank : ranks)
        for (std::int64_t i = 0; i < axis.size; ++i) next.push_back(rank + i * axis.stride);
      ranks = std::move(next);
    }
    std::vector<DeviceId> devices;
    for (std::int64_t rank : ranks) devices.push_back(problem_.device_at(rank));
    return make_communicator(problem_.cluster(), devices, collective);
  };
  std::int64_t reach = 0;  // from the first member to the last
  for (const StridedGroup& axis : shape.axes()) reach += (axis.size - 1) * axis.stride;
  std::vector<Communicator> beside;
  if (reach < problem_.per_node || !own_nics(problem_)) {
    // Groups whose first device is in the first node: it is the first along every axis.
    for (std::int64_t first = 1; first < std::min(problem_.per_node, problem_.devices); ++first) {
      const bool leads = std::all_of(shape.axes().begin(), shape.axes().end(), [&](const StridedGroup& axis) {
        return first % (axis.size * axis.stride) < axis.stride;
      });
      if (leads && first + reach < problem_.devices) beside.push_back(members(first));
    }
  }
  return found->second = GroupCost(problem_.cluster(), cost_, members(0), beside);
}

const GroupCost& GroupCosts::pair(std::int64_t distance) {
  const std::lock_guard lock(mutex_);
  const auto [found, fresh] = pairs_.try_emplace(distance);
  if (!fresh) return found->second;
  std::vector<Communicator> beside;
  const auto from = [&](std::int64_t device) {
    return make_transfer(problem_.cluster(), problem_.device_at(device), problem_.device_at(device + distance));
  };
  for (std::int64_t device = 1; device < std::min(problem_.per_node, problem_.devices - distance); ++device)
    beside.push_back(from(device));
  return found->second = GroupCost(problem_.cluster(), cost_, from(0), beside);
}

GroupCost::Taken GroupCosts::collective(Collective collective, const JointShape& shape, std::int64_t bytes) {
  if (shape.axes().empty()) return {};
  return group(collective, shape).of(cost_, bytes);
}

GroupCost::Taken GroupCosts::transfer(std::int64_t distance, std::int64_t bytes) {
  if (distance <= 0 || distance >= problem_.devices) return {};
  return pair(distance).of(cost_, bytes);
}

}  // namespace weft
