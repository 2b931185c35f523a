// Every communication of a program on its devices: its groups and the links that they load.
//
// A *kind* is a communication pattern: a collective along some mesh axes, a transfer between two layouts, copies to the
// host. It has one group per set of devices that communicate; groups of the same shape cost the same. All instructions
// with the same pattern share a kind.
#pragma once

#include <map>
#include <unordered_map>

#include "base/hash.h"
#include "cost/cost.h"
#include "program/program.h"

namespace weft {

using KindId = Id<struct CommunicationKindTag>;
using CommGroupId = Id<struct CommGroupTag>;
using ShapeId = Id<struct CommShapeTag>;

struct CommGroup {
  KindId kind;
  ShapeId shape;
  std::vector<std::uint32_t> members;  // positions in the world mesh; of a transfer, senders, then receivers
  std::uint32_t senders = 0;
  std::uint32_t prototype = 0;  // communicator whose links it loads, …
  std::int64_t shift = 0;       // … with this offset of link ids (another node of the same type)
  bool local = false;           // no data leaves its device
  std::int64_t moved = 0;       // of transfers: elements sent between devices
};

struct CommKind {
  MeshId mesh, to;                                      // `to`: destination of transfers
  std::vector<CommGroupId> group_at, received_at = {};  // by position in the mesh; invalid: in no group
};

// A smaller communication is too short to contend for links: it takes its isolated time and loads no link. (The tree of
// a scalar all-reduce over 16,384 devices treats every node differently; no devices could be folded.)
inline constexpr std::int64_t kNegligibleBytes = 16 << 10;

// The data that a group moves for an instruction, in bytes of its largest member.
struct Payload {
  std::int64_t bytes = 0;
  std::int64_t repacked = 0;  // bytes copied in memory so that the block of each member is contiguous
  Parts parts = Parts::Even;

  auto operator<=>(const Payload&) const = default;
};

// The number of copies in memory that an all-to-all needs, before and after: 0 to 2.
int repackings(const Program& program, BufferId from, BufferId to);

class Communications {
 public:
  Communications(const Program& program, const Graph& graph, const Cluster& cluster, const CostModel& cost);

  // The kind of an instruction that communicates; invalid for others.
  KindId kind_of(const Instruction& instruction);
  // The data that the group moves for the instruction, and its cost.
  Payload payload_of(const Instruction& instruction, const CommGroup& group) const;
  const CommunicateCost& cost_of(const CommGroup& group, const Payload& payload);
  const CommunicateCost& cost_of(const Instruction& instruction, const CommGroup& group) {
    return cost_of(group, payload_of(instruction, group));
  }

  const IdVec<KindId, CommKind>& kinds() const { return kinds_; }
  const IdVec<CommGroupId, CommGroup>& groups() const { return groups_; }
  const std::vector<Communicator>& communicators() const { return communicators_; }
  // Routes that instructions use, by shape; filled by cost_of.
  const IdVec<ShapeId, std::vector<std::uint32_t>>& routes_used() const { return routes_used_; }

 private:
  KindId collective_kind(MeshId mesh, MeshAxes along, Collective collective);
  KindId transfer_kind(const Transfer& transfer);
  KindId copy_kind(MeshId mesh, bool to_host);
  std::uint32_t add_communicator(Communicator communicator);
  std::uint32_t mover_of(std::span<const BlockMove> blocks);
  CommGroupId add_group(KindId kind, std::vector<std::uint32_t> members, Communicator communicator);
  ShapeId shape_of(const Communicator& communicator);
  std::uint32_t world_position(DeviceId device) const;
  std::int64_t bytes_of_elements(BufferId buffer, std::int64_t elements) const;
  // With `tokens_once`: the share of the rows dispatched to experts on `members` devices that is sent, as a token is
  // sent once to each device.
  double sent_share(TensorId rows, std::size_t members) const;

  const Program& program_;
  const Graph& graph_;
  const Cluster& cluster_;
  const CostModel& cost_;
  IdVec<KindId, CommKind> kinds_;
  IdVec<CommGroupId, CommGroup> groups_;
  std::vector<Communicator> communicators_;
  std::vector<ShapeId> shape_of_communicator_;
  IdVec<ShapeId, std::vector<std::uint32_t>> routes_used_;
  std::map<std::tuple<MeshId, MeshAxes, Collective>, KindId> collectives_;
  std::map<std::pair<MeshId, bool>, KindId> copies_;
  std::map<std::pair<MeshId, MeshId>, std::vector<std::pair<std::pair<Layout, Layout>, KindId>>> transfers_;
  std::map<std::tuple<const NodeType*, Collective, std::vector<int>>, std::uint32_t> inside_node_;
  std::unordered_map<std::vector<std::uint64_t>, std::uint32_t, HashNumbers> movers_;  // by blocks
  std::unordered_map<std::vector<std::uint64_t>, ShapeId, HashNumbers> shapes_;
  std::map<std::pair<ShapeId, Payload>, CommunicateCost> costs_;
};

}  // namespace weft
