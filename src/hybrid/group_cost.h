// The time of a communication when every group of its kind performs it at once, as the replicas of a plan do: the cost
// model's time for one group, with links shared with the other groups.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "cost/cost.h"
#include "problem/problem.h"

namespace weft {

// Groups of `size` devices at distance `stride`: the first contains device 0, the others are translations of it.
struct StridedGroup {
  std::int64_t size = 1, stride = 1;

  auto operator<=>(const StridedGroup&) const = default;
};
// Groups that are grids along several such axes, the major one first. Canonical: no axis of one device, and two axes
// that form one with a constant stride are merged.
class JointShape {
 public:
  JointShape() = default;
  JointShape(const StridedGroup& axis) { add(axis); }  // NOLINT: a group along one axis is one
  // One more axis, minor to the others.
  void add(const StridedGroup& axis) {
    if (axis.size == 1) return;
    if (!axes_.empty() && axes_.back().stride == axis.size * axis.stride)
      axes_.back() = {axes_.back().size * axis.size, axis.stride};
    else
      axes_.push_back(axis);
  }
  const std::vector<StridedGroup>& axes() const { return axes_; }
  std::int64_t size() const {
    std::int64_t size = 1;
    for (const StridedGroup& axis : axes_) size *= axis.size;
    return size;
  }

  auto operator<=>(const JointShape&) const = default;

 private:
  std::vector<StridedGroup> axes_;
};

// The share of a link's capacity that a communication of a device uses.
struct DeviceLinkLoad {
  LinkId link;
  double share = 0;
};
using LinkLoads = std::vector<DeviceLinkLoad>;
bool alike(const LinkLoads& one, const LinkLoads& other);
// Speeds of two concurrent communications of a device, as fractions of their speeds alone. Where together they need
// more of a link than it has, one that needs at most half of it gets what it needs (max-min fairness).
struct Sharing {
  double one = 1, other = 1;
};
Sharing share_links(const LinkLoads& one, const LinkLoads& other);

// One group's communicator, and the rate available to it on each route while the other groups communicate too.
class GroupCost {
 public:
  struct Taken {
    double seconds = 0;
    std::int32_t sm_share = 0, memory_share = 0;
    double spare = 1;      // its rate alone over its rate with the other groups: at least 1
    LinkLoads links = {};  // of the group's first device
  };

  GroupCost() = default;
  // `concurrent`: groups that communicate at the same time.
  GroupCost(const Cluster& cluster, const CostModel& cost, Communicator own,
            const std::vector<Communicator>& concurrent);

  Taken of(const CostModel& cost, std::int64_t bytes) const;

 private:
  Communicator communicator_;
  std::vector<double> limit_;     // bytes per second, by route; 0: none
  std::vector<LinkLoads> loads_;  // by route: of the first device at a rate of one byte per second
};

// Costs by shape, each computed once. Safe from several threads.
class GroupCosts {
 public:
  GroupCosts(const PlanProblem& problem, const CostModel& cost) : problem_(problem), cost_(cost) {}

  GroupCost::Taken collective(Collective collective, const JointShape& shape, std::int64_t bytes);
  // From every device to the one `distance` ranks further.
  GroupCost::Taken transfer(std::int64_t distance, std::int64_t bytes);

 private:
  const GroupCost& group(Collective collective, const JointShape& shape);
  const GroupCost& pair(std::int64_t distance);

  const PlanProblem& problem_;
  const CostModel& cost_;
  std::mutex mutex_;
  std::map<std::pair<Collective, JointShape>, GroupCost> groups_;
  std::map<std::int64_t, GroupCost> pairs_;
};

}  // namespace weft
