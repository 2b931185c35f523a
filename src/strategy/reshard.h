// Resharding: from one layout of a tensor to another on the same mesh, as a sequence of collectives.
//
// Each step moves along one mesh axis: all-gather (split → replicated), slice (replicated → split, no communication),
// all-reduce (partial → replicated), reduce-scatter (partial → split), all-to-all (split one way → another), halo
// exchange and halo sum for windows. Among the orders that the nesting of cuts allows, the one that sends the fewest
// bytes is taken.
#pragma once

#include <vector>

#include "base/result.h"
#include "strategy/layout.h"

namespace weft {

enum class Collective : std::uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  Slice,
  HaloExchange,
  HaloSum,
  Shift,  // every device hands its block to the next of the ring; only inside rings, never by resharding
};
std::string_view name_of(Collective collective);

struct ReshardStep {
  Collective collective{};
  int mesh_axis = -1;
  Reducer reducer = Reducer::Sum;
  Layout to;  // the layout after the step

  bool operator==(const ReshardStep&) const = default;
};

// The steps, none when the layouts are equal. An error where no sequence exists: a local value has one layout only,
// nothing becomes partial, and what is on its way around a ring stays in it. Cost: grows with the orders of the steps,
// which are few.
Result<std::vector<ReshardStep>> reshard(const Layout& from, const Layout& to, const Mesh& mesh);

// Elements that one device sends in a step, by the ring algorithm: 2(n−1)/n·V for an all-reduce of V elements,
// (n−1)/n·V for the others, V the larger of the local sizes before and after, for an all-to-all the local size; a shift
// sends all of it.
double elements_sent(const ReshardStep& step, const Layout& before, const Mesh& mesh);

}  // namespace weft
