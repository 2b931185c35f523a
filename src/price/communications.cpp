#include "price/communications.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"
#include "graph/routing.h"
#include "program/slice_moves.h"

namespace weft {

Communications::Communications(const Program& program, const Graph& graph, const Cluster& cluster,
                               const CostModel& cost)
    : program_(program), graph_(graph), cluster_(cluster), cost_(cost) {}

std::uint32_t Communications::world_position(DeviceId device) const {
  return static_cast<std::uint32_t>(program_.meshes[program_.world].position_of(device));
}

KindId Communications::kind_of(const Instruction& instruction) {
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
    return communicate->collective == Collective::Slice
               ? KindId()
               : collective_kind(instruction.mesh, communicate->axes, communicate->collective);
  if (const auto* send = std::get_if<Send>(&instruction.what)) return transfer_kind(program_.transfers[send->transfer]);
  if (const auto* receive = std::get_if<Receive>(&instruction.what))
    return transfer_kind(program_.transfers[receive->transfer]);
  if (const auto* copy = std::get_if<Copy>(&instruction.what))
    return copy_kind(instruction.mesh, program_.buffers[copy->to].on_host);
  return KindId();
}

KindId Communications::collective_kind(MeshId mesh_id, MeshAxes along, Collective collective) {
  const auto [found, added] = collectives_.try_emplace({mesh_id, along, collective});
  if (!added) return found->second;
  const Mesh& mesh = program_.meshes[mesh_id];
  const KindId kind = found->second =
      kinds_.push_back({mesh_id, {}, std::vector<CommGroupId>(static_cast<std::size_t>(mesh.size()))});
  for (int leader = 0; leader < mesh.size(); ++leader) {
    if (mesh.group_leader(leader, along) != leader) continue;
    const std::vector<int> positions = mesh.group(leader, along);
    std::vector<DeviceId> devices;
    std::vector<std::uint32_t> members;
    for (int position : positions) {
      devices.push_back(mesh.devices()[static_cast<std::size_t>(position)]);
      members.push_back(world_position(devices.back()));
    }
    // Nodes of one type have the same links at consecutive ids: the loads of a group inside a node are found once.
    const NodeId node = cluster_.node_of(devices.front());
    bool inside = devices.size() > 1;
    std::vector<int> indices;
    for (DeviceId device : devices) {
      inside = inside && cluster_.node_of(device) == node;
      indices.push_back(cluster_.index_in_node(device));
    }
    CommGroupId group;
    if (inside) {
      const auto [prototype, first] = inside_node_.try_emplace(
          {&cluster_.type_of(node), collective, std::move(indices)}, static_cast<std::uint32_t>(communicators_.size()));
      if (first) {
        group = add_group(kind, std::move(members), make_communicator(cluster_, devices, collective));
      } else {
        const Communicator& known = communicators_[prototype->second];
        const std::int64_t shift = static_cast<std::int64_t>(cluster_.path(devices[0], devices[1]).front().index()) -
                                   cluster_.path(known.members[0], known.members[1]).front().index();
        group = groups_.push_back({kind, shape_of_communicator_[prototype->second], std::move(members), 0,
                                   prototype->second, shift, false, 0});
      }
    } else {
      group = add_group(kind, std::move(members), make_communicator(cluster_, devices, collective));
    }
    for (int position : positions) kinds_[kind].group_at[static_cast<std::size_t>(position)] = group;
  }
  return kind;
}

KindId Communications::copy_kind(MeshId mesh_id, bool to_host) {
  const auto [found, added] = copies_.try_emplace({mesh_id, to_host});
  if (!added) return found->second;
  const Mesh& mesh = program_.meshes[mesh_id];
  const KindId kind = found->second = kinds_.push_back({mesh_id, {}, {}});
  for (DeviceId device : mesh.devices())
    kinds_[kind].group_at.push_back(
        add_group(kind, {world_position(device)}, make_host_copy(cluster_, device, to_host)));
  return kind;
}

// Senders and receivers connected by moves form one group.
KindId Communications::transfer_kind(const Transfer& transfer) {
  const Layout &from = program_.buffers[transfer.from].layout, &to = program_.buffers[transfer.to].layout;
  auto& known = transfers_[{from.mesh, to.mesh}];
  for (const auto& [layouts, kind] : known)
    if (layouts.first == from && layouts.second == to) return kind;
  const Mesh &senders = program_.meshes[from.mesh], &receivers = program_.meshes[to.mesh];
  const KindId kind =
      kinds_.push_back({from.mesh, to.mesh, std::vector<CommGroupId>(static_cast<std::size_t>(senders.size())),
                        std::vector<CommGroupId>(static_cast<std::size_t>(receivers.size()))});
  known.push_back({{from, to}, kind});
  const std::vector<SliceMove> moves = slice_moves(from, senders, to, receivers);
  std::vector<int> parent(static_cast<std::size_t>(senders.size() + receivers.size()));
  std::iota(parent.begin(), parent.end(), 0);
  const auto find = [&](int i) {
    while (parent[static_cast<std::size_t>(i)] != i)
      i = parent[static_cast<std::size_t>(i)] = parent[static_cast<std::size_t>(parent[static_cast<std::size_t>(i)])];
    return i;
  };
  const auto join = [&](int a, int b) { parent[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b); };
  for (const SliceMove& move : moves) join(find(move.from), find(senders.size() + move.to));
  std::map<int, std::vector<const SliceMove*>> components;
  for (const SliceMove& move : moves) components[find(move.from)].push_back(&move);
  for (const auto& [root, list] : components) {
    std::vector<BlockMove> blocks;
    std::vector<int> sending, receiving;
    std::int64_t elements = 0;
    for (const SliceMove* move : list) {
      sending.push_back(move->from);
      receiving.push_back(move->to);
      const DeviceId a = senders.devices()[static_cast<std::size_t>(move->from)],
                     b = receivers.devices()[static_cast<std::size_t>(move->to)];
      if (a == b) continue;
      blocks.push_back({a, b, std::max<std::int64_t>(1, move->elements)});
      elements += blocks.back().bytes;
    }
    for (auto* positions : {&sending, &receiving}) {
      std::sort(positions->begin(), positions->end());
      positions->erase(std::unique(positions->begin(), positions->end()), positions->end());
    }
    std::vector<std::uint32_t> members;
    for (int position : sending)
      members.push_back(world_position(senders.devices()[static_cast<std::size_t>(position)]));
    for (int position : receiving)
      members.push_back(world_position(receivers.devices()[static_cast<std::size_t>(position)]));
    const std::uint32_t prototype = mover_of(blocks);
    const CommGroupId group =
        groups_.push_back({kind, shape_of_communicator_[prototype], std::move(members),
                           static_cast<std::uint32_t>(sending.size()), prototype, 0, blocks.empty(), elements});
    for (int position : sending) kinds_[kind].group_at[static_cast<std::size_t>(position)] = group;
    for (int position : receiving) kinds_[kind].received_at[static_cast<std::size_t>(position)] = group;
  }
  return kind;
}

// Blocks in the same proportions between the same devices share a communicator.
std::uint32_t Communications::mover_of(std::span<const BlockMove> blocks) {
  std::int64_t unit = 0;
  for (const BlockMove& block : blocks) unit = std::gcd(unit, block.bytes);
  std::vector<std::uint64_t> key;
  key.reserve(2 * blocks.size());
  for (const BlockMove& block : blocks) {
    key.push_back(std::uint64_t{block.from.index()} << 32 | block.to.index());
    key.push_back(static_cast<std::uint64_t>(block.bytes / unit));
  }
  const auto [found, added] = movers_.try_emplace(std::move(key));
  if (added) found->second = add_communicator(blocks.empty() ? Communicator{} : make_block_moves(cluster_, blocks));
  return found->second;
}

std::uint32_t Communications::add_communicator(Communicator communicator) {
  shape_of_communicator_.push_back(shape_of(communicator));
  communicators_.push_back(std::move(communicator));
  return static_cast<std::uint32_t>(communicators_.size() - 1);
}

CommGroupId Communications::add_group(KindId kind, std::vector<std::uint32_t> members, Communicator communicator) {
  const std::uint32_t made = add_communicator(std::move(communicator));
  return groups_.push_back({kind, shape_of_communicator_[made], std::move(members), 0, made, 0, false, 0});
}

// Communicators with equal figures cost the same and share a shape.
ShapeId Communications::shape_of(const Communicator& communicator) {
  std::vector<std::uint64_t> key;
  const auto add = [&](auto value) {
    if constexpr (std::is_floating_point_v<decltype(value)>)
      key.push_back(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    else
      key.push_back(static_cast<std::uint64_t>(value));
  };
  add(communicator.traffic);
  add(communicator.members.size());
  add(communicator.nodes);
  add(communicator.fewest_per_node);
  add(communicator.most_per_node);
  add(std::bit_cast<std::uintptr_t>(communicator.device));
  for (const Route& route : communicator.routes) {
    add(route.algorithm);
    add(route.volume);
    add(route.sent);
    add(route.steps_inside);
    add(route.steps_between);
    add(route.latency_inside.value);
    add(route.latency_between.value);
    for (const Route::Narrowest& narrowest : route.narrowest) {
      add(narrowest.bandwidth.value);
      add(narrowest.coefficient);
    }
  }
  const auto [found, added] = shapes_.try_emplace(std::move(key), ShapeId(shapes_.size()));
  if (added) routes_used_.push_back({});
  return found->second;
}

// A member's block is not contiguous before sending if a dimension outside the one being cut varies, and not contiguous
// on arrival if a dimension outside the one being joined varies.
int repackings(const Program& program, BufferId from_id, BufferId to_id) {
  const Buffer &from = program.buffers[from_id], &to = program.buffers[to_id];
  const Mesh& mesh = program.meshes[from.layout.mesh];
  const Shape before = local_shape(from.layout, mesh, 0), after = local_shape(to.layout, mesh, 0);
  bool outer_varies = false, cut = false, joined = false;
  for (std::size_t dim = 0; dim < before.size(); ++dim) {
    cut = cut || (after[dim] < before[dim] && outer_varies);
    joined = joined || (after[dim] > before[dim] && outer_varies);
    outer_varies = outer_varies || std::min(before[dim], after[dim]) > 1;
  }
  return (cut ? 1 : 0) + (joined ? 1 : 0);
}

// With balanced routing to k of E experts on n devices, E/n on each, a token reaches n (1 − C(E − E/n, k) / C(E, k))
// devices. If tokens choose within some groups of experts (DeepSeek-V3), the same holds among those groups' devices.
double Communications::sent_share(TensorId rows, std::size_t members) const {
  const OpId router = routed_by(graph_, rows);
  WEFT_CHECK(router.valid(), "{} is sent once per token and not routed", graph_.name(rows));
  const Signature& signature = graph_.signature(router);
  const auto chosen = static_cast<double>(signature.axes[static_cast<std::size_t>(signature.axis_named("j"))].size);
  const auto groups = static_cast<double>(std::max<std::int64_t>(1, signature.attrs.integer("expert_groups", 1)));
  const double open = static_cast<double>(signature.attrs.integer("top_groups", 0)) / groups;
  const double of_all = open > 0 ? std::min(1.0, open) : 1;
  const double experts = static_cast<double>(signature.attrs.integer("experts", 1)) * of_all,
               devices = std::max(1.0, static_cast<double>(members) * of_all), each = experts / devices;
  double missed = 1;
  for (double i = 0; i < chosen; ++i) missed *= std::max(0.0, experts - each - i) / std::max(1.0, experts - i);
  return std::min(1.0, devices * (1 - missed) / chosen);
}

Payload Communications::payload_of(const Instruction& instruction, const CommGroup& group) const {
  const auto elements = [&](BufferId id) {
    const Layout& layout = program_.buffers[id].layout;
    return largest_local_elements(layout, program_.meshes[layout.mesh]);
  };
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
    const auto local = [&](BufferId id) {
      return communicate->wire ? weft::bytes_of(*communicate->wire, elements(id)) : bytes_of_elements(id, elements(id));
    };
    if (communicate->parts != Parts::Even) {
      const CommunicateQuery query = query_of_parts(communicators_[group.prototype], communicate->parts,
                                                    part_bytes(program_, graph_, *communicate));
      return {query.bytes, query.repacked, query.parts};
    }
    Payload payload;
    std::int64_t& bytes = payload.bytes;
    for (std::size_t i = 0; i < communicate->outputs.size(); ++i) {
      const std::int64_t before = local(communicate->inputs[i]), after = local(communicate->outputs[i]);
      switch (communicate->collective) {
        case Collective::AllToAll: {
          const BufferId from = communicate->inputs[i];
          const double share =
              communicate->tokens_once ? sent_share(program_.buffers[from].tensor, group.members.size()) : 1;
          bytes += static_cast<std::int64_t>(static_cast<double>(before) * share);
          payload.repacked += before * repackings(program_, from, communicate->outputs[i]);
          break;
        }
        case Collective::HaloExchange:
          bytes += after - before;
          break;
        case Collective::HaloSum:
          bytes += before - after;
          break;
        default:
          bytes += std::max(before, after);
      }
    }
    return payload;
  }
  if (const auto* copy = std::get_if<Copy>(&instruction.what))
    return {bytes_of_elements(copy->from, elements(copy->from))};
  const auto* send = std::get_if<Send>(&instruction.what);
  const TransferId transfer = send ? send->transfer : std::get<Receive>(instruction.what).transfer;
  return {bytes_of_elements(program_.transfers[transfer].from, group.moved)};
}

std::int64_t Communications::bytes_of_elements(BufferId buffer, std::int64_t elements) const {
  return weft::bytes_of(stored_type(program_, graph_, buffer), elements);
}

const CommunicateCost& Communications::cost_of(const CommGroup& group, const Payload& payload) {
  const auto [found, added] = costs_.try_emplace({group.shape, payload});
  if (added) {
    const Communicator& communicator = communicators_[group.prototype];
    if (!communicator.routes.empty() && payload.bytes > 0) {
      found->second =
          cost_.communicate(CommunicateQuery{&communicator, payload.bytes, payload.parts, payload.repacked});
      std::vector<std::uint32_t>& used = routes_used_[group.shape];
      if (found->second.bytes > kNegligibleBytes &&
          std::find(used.begin(), used.end(), found->second.route) == used.end())
        used.push_back(found->second.route);
    }
  }
  return found->second;
}

}  // namespace weft
