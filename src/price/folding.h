// Which devices, groups and links behave the same at all times.
//
// Devices that compute the same and are in the same groups, on the same side, are identical: folding them is exact
// under any network model.
//
// More are *equivalent* (Fold::Alike), found by colour refinement: devices are distinguished by what they compute and
// by the colours of their groups; groups by their shape, their members' colours and the links they load; links by their
// capacity and by the groups that load them. At the fixed point the partition is equitable: with equal initial states,
// members of one colour stay equal.
#pragma once

#include "price/communications.h"
#include "price/price.h"

namespace weft {

struct LoadedLink {
  LinkId link;
  std::int64_t capacity = 0;  // bytes per second
};

// A group's load on a link (an index into `links`) by one of its routes.
struct LinkIncidence {
  std::uint32_t route = 0, link = 0;
  std::int64_t coefficient = 0;
};

struct FoldedDevices {
  std::vector<std::uint32_t> device;  // class, by position in the world mesh; numbered by first member
  IdVec<CommGroupId, std::uint32_t> group;
  std::vector<std::uint32_t> link;
  std::uint32_t devices = 0, groups = 0, link_classes = 0;  // numbers of classes

  std::vector<LoadedLink> links;
  IdVec<CommGroupId, std::vector<LinkIncidence>> loads;
};

// `colour`: the initial colours of devices. Unless equivalent devices are folded, every group and link is a class of
// its own.
FoldedDevices partition(const Communications& communications, const Cluster& cluster, const CostModel& cost,
                        std::vector<std::uint64_t> colour, Fold fold);

}  // namespace weft
