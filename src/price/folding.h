// Which devices, groups and links do the same at the same time.
//
// Devices that compute the same and are in the same groups, on the same side, are the same: exact under any network.
//
// More are *alike*, by colour refinement: devices are told apart by what they compute and by the colours of the groups
// they are in; groups by their shape, their members' colours and the links they load; links by their capacity and by
// who loads them. Refined until nothing is separated any more, the partition is equitable: with equal starts, things of
// one colour stay equal for ever.
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
  std::vector<std::uint32_t> device;  // class, by position in the world; numbered by first member
  IdVec<CommGroupId, std::uint32_t> group;
  std::vector<std::uint32_t> link;
  std::uint32_t devices = 0, groups = 0, link_classes = 0;  // how many classes

  std::vector<LoadedLink> links;
  IdVec<CommGroupId, std::vector<LinkIncidence>> loads;
};

// `colour`: what separates devices to begin with. Unless things that are alike are folded, every group and link is a
// class of its own.
FoldedDevices partition(const Communications& communications, const Cluster& cluster, const CostModel& cost,
                        std::vector<std::uint64_t> colour, Fold fold);

}  // namespace weft
