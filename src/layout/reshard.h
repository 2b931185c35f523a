// Resharding: from one layout of a tensor to another on the same mesh, as a sequence of collectives.
//
// A step moves along one mesh axis or several at once: all-gather (split → replicated), slice (replicated → split, no
// communication), all-reduce (partial → replicated), reduce-scatter (partial → split), all-to-all (split one way →
// another), halo exchange and halo sum for windows. Its members are the devices of Mesh::group(position, axes).
//
// What each member gets is what the layout after the step gives to its position, whatever the order of the members:
// after a reduce-scatter of [1024] over {dp, cp} onto [1024: cp, dp], the member at dp = 1, cp = 0 has the second part
// of the first half. The cuts may fall on one dimension, on several, or inside the parts of earlier cuts (a strided
// shard); what goes to one member need not lie together in memory.
//
// Among the orders that the nesting of cuts allows, the one that sends the fewest bytes is taken, and of those the one
// with the fewest steps; where that takes several steps and prices are at hand, the one that costs least. One
// all-reduce of V elements over n·m devices sends 2(nm−1)/nm·V; two in turn, over n and over m, send more: 2(n−1)/n·V +
// 2(m−1)/m·V. The same holds for all-to-alls. Gathers in turn send what a joint one sends, and so do reduce-scatters:
// they are joined for the sake of the steps. A sum over {fsdp, replicate} that is kept cut by fsdp alone stays in two
// steps: a reduce-scatter over n = fsdp and an all-reduce of the part over m = replicate send (n+1−2/m)/n·V, a joint
// all-reduce 2(n−1/m)/n·V.
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
  Shift,  // every device hands its block to the next of the ring; only inside rings, never by resharding
};
std::string_view name_of(Collective collective);

// How an all-gather or a reduce-scatter is executed. Where some cut along its axes has shares, its members have parts
// of different sizes, which NCCL's collectives do not take: either is then a choice, both give the same. (All-to-alls,
// halos and shifts are sends and receives between pairs and take any sizes; the members of an all-reduce hold alike.)
enum class Parts : std::uint8_t {
  Even,     // all parts are of one size: one collective, in place
  Padded,   // every part is copied into one of the largest's size: one collective, members × largest (FSDP2)
  Grouped,  // a broadcast of each member's part to all (a reduction of it to its member), exactly as large as it is,
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

// Of the members' parts of an all-gather or a reduce-scatter, in the group where they are largest; in elements or
// bytes.
struct PartSizes {
  std::int64_t all = 0;  // of the members together
  std::int64_t largest = 0, smallest = 0;

  // Of a bucket: each tensor is padded by itself.
  PartSizes& operator+=(const PartSizes& other) {
    all += other.all;
    largest += other.largest;
    smallest += other.smallest;
    return *this;
  }
  bool operator==(const PartSizes&) const = default;
};
// Of the two layouts of an all-gather or a reduce-scatter, the one that is cut along its axes; null of other
// collectives.
inline const Layout* cut_side(Collective collective, const Layout& before, const Layout& after) {
  return collective == Collective::AllGather ? &before : collective == Collective::ReduceScatter ? &after : nullptr;
}
// Whether the devices that differ in these mesh axes alone have parts of different sizes. Cost: one look at each cut.
bool has_uneven_parts(const Layout& layout, MeshAxes axes);
PartSizes part_sizes(const Layout& layout, MeshAxes axes, const Mesh& mesh);
inline PartSizes bytes_of(DType dtype, const PartSizes& elements) {
  return {bytes_of(dtype, elements.all), bytes_of(dtype, elements.largest), bytes_of(dtype, elements.smallest)};
}

// What a step costs by itself, in any unit: what decides between fewer bytes and fewer steps, and between padded and
// grouped parts.
class StepPrice {
 public:
  virtual ~StepPrice() = default;
  virtual double of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const = 0;
  // Of parts of different sizes in bytes, padded or grouped.
  virtual double of_parts(Collective collective, MeshAxes axes, Parts parts, const PartSizes& bytes,
                          const Mesh& mesh) const = 0;
};

// The steps, none when the layouts are equal. An error where no sequence exists: a local value has one layout only,
// nothing becomes partial, and what is on its way around a ring stays in it. Cost: grows with the orders of the steps,
// which are few.
Result<std::vector<ReshardStep>> reshard(const Layout& from, const Layout& to, const Mesh& mesh,
                                         const StepPrice* price = nullptr, DType dtype = DType::F32);

// Elements that one device sends in a step among n devices, by the ring algorithm: 2(n−1)/n·V for an all-reduce of V
// elements, (n−1)/n·V for the others, V the larger of the local sizes before and after, for an all-to-all the local
// size; a shift sends all of it. Padded parts: (n−1) times the largest. Grouped ones: (n−1)/n·V on average, V less the
// smallest part at most.
double elements_sent(const ReshardStep& step, const Layout& before, const Mesh& mesh, Parts parts = Parts::Even);

}  // namespace weft
