// Resharding: from one layout of a tensor to another on the same mesh, as a sequence of collectives.
//
// A step moves along one mesh axis or several at once: all-gather (split → replicated), slice (replicated → split, no
// communication), all-reduce (partial → replicated), reduce-scatter (partial → split), all-to-all (split one way →
// another), halo exchange and halo sum for windows. Its members are the devices of Mesh::group(position, axes).
//
// A member receives the part that the layout after the step gives to its position, whatever the order of the members:
// after a reduce-scatter of [1024] over {dp, cp} onto [1024: cp, dp], the member at dp = 1, cp = 0 has the second part
// of the first half. The cuts may be of one dimension, of several, or inside the parts of earlier cuts (a strided
// shard); the part of one member need not be contiguous in memory.
//
// Of the orders that the nesting of cuts allows, the one that sends the fewest bytes is chosen, and of those the one
// with the fewest steps; if that takes several steps and a StepPrice is given, the cheapest one. One all-reduce of V
// elements over n·m devices sends 2(nm−1)/nm·V; two successive ones, over n and over m, send more: 2(n−1)/n·V +
// 2(m−1)/m·V. The same holds for all-to-alls. Successive all-gathers send as much as a joint one, and so do
// reduce-scatters: they are joined to save steps. A sum over {fsdp, replicate} that stays sharded over fsdp alone takes
// two steps: a reduce-scatter over n = fsdp and an all-reduce of the part over m = replicate send (n+1−2/m)/n·V, a
// joint all-reduce 2(n−1/m)/n·V.
#pragma once

#include <vector>

#include "base/result.h"
#include "graph/dtype.h"
#include "layout/layout.h"

namespace weft {

enum class Collective : std::uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  Slice,
  HaloExchange,
  HaloSum,
  Shift,  // every device sends its block to the next one of the ring; only in ring attention, never by resharding
};
std::string_view name_of(Collective collective);

// How an all-gather or a reduce-scatter is executed. If a cut along its axes has shares, its members have parts of
// different sizes, which NCCL's collectives do not support: then it is Padded or Grouped, with the same result.
// (All-to-alls, halo exchanges and shifts are sends and receives between pairs and support any sizes; the parts of an
// all-reduce are equal.)
enum class Parts : std::uint8_t {
  Even,     // all parts are of one size: one collective, in place
  Padded,   // every part is padded to the largest: one collective of members × largest (FSDP2)
  Grouped,  // a broadcast of each member's part to all (or a reduce of it to that member), unpadded,
            // all launched together (c10d's all_gather and reduce_scatter of lists)
};
std::string_view name_of(Parts parts);

struct ReshardStep {
  Collective collective{};
  MeshAxes axes = 0;
  Reducer reducer = Reducer::Sum;
  Layout to;  // the layout after the step

  bool operator==(const ReshardStep&) const = default;
};

// Sizes of the members' parts of an all-gather or a reduce-scatter, in the group where they are largest; in elements or
// bytes.
struct PartSizes {
  std::int64_t all = 0;  // the sum over members
  std::int64_t largest = 0, smallest = 0;

  // For a bucket: each tensor is padded separately.
  PartSizes& operator+=(const PartSizes& other) {
    all += other.all;
    largest += other.largest;
    smallest += other.smallest;
    return *this;
  }
  bool operator==(const PartSizes&) const = default;
};
// Of the two layouts of an all-gather or a reduce-scatter, the one that is cut along its axes; null for other
// collectives.
inline const Layout* cut_side(Collective collective, const Layout& before, const Layout& after) {
  return collective == Collective::AllGather ? &before : collective == Collective::ReduceScatter ? &after : nullptr;
}
// Whether the devices that differ in these mesh axes alone have parts of different sizes. Cost: linear in the cuts.
bool has_uneven_parts(const Layout& layout, MeshAxes axes);
PartSizes part_sizes(const Layout& layout, MeshAxes axes, const Mesh& mesh);
inline PartSizes bytes_of(DType dtype, const PartSizes& elements) {
  return {bytes_of(dtype, elements.all), bytes_of(dtype, elements.largest), bytes_of(dtype, elements.smallest)};
}

// The cost of a step alone, in any unit. It decides between fewer bytes and fewer steps, and between padded and grouped
// parts.
class StepPrice {
 public:
  virtual ~StepPrice() = default;
  virtual double of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const = 0;
  // The cost with parts of different sizes (in bytes), padded or grouped.
  virtual double of_parts(Collective collective, MeshAxes axes, Parts parts, const PartSizes& bytes,
                          const Mesh& mesh) const = 0;
};

// The steps, none if the layouts are equal. An error if no sequence exists: a local tensor cannot change its layout, no
// tensor becomes partial, and a rotated layout cannot be resharded. Cost: linear in the possible orders of the steps,
// which are few.
Result<std::vector<ReshardStep>> reshard(const Layout& from, const Layout& to, const Mesh& mesh,
                                         const StepPrice* price = nullptr, DType dtype = DType::F32);

// Elements that one device sends in a step among n devices, by the ring algorithm: 2(n−1)/n·V for an all-reduce of V
// elements, (n−1)/n·V for the others, V the larger of the local sizes before and after, for an all-to-all the local
// size; a shift sends all of it. Padded parts: (n−1) times the largest. Grouped ones: (n−1)/n·V on average, V less the
// smallest part at most.
double elements_sent(const ReshardStep& step, const Layout& before, const Mesh& mesh, Parts parts = Parts::Even);

}  // namespace weft
