#include "run/exchange.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "program/slice_moves.h"

namespace weft::runtime {
namespace {

int device_at(const Mesh& mesh, int position) {
  return static_cast<int>(mesh.devices()[static_cast<std::size_t>(position)].index());
}

Stream sending_stream(const Program& program, TransferId transfer) {
  for (const Instruction& instruction : program.instructions)
    if (const auto* send = std::get_if<Send>(&instruction.what); send && send->transfer == transfer)
      return instruction.stream;
  return Stream::Send;
}

std::vector<SliceMove> moves_of(const Program& program, const Transfer& transfer) {
  const Layout &from = program.buffers[transfer.from].layout, &to = program.buffers[transfer.to].layout;
  return slice_moves(from, program.meshes[from.mesh], to, program.meshes[to.mesh]);
}

// Both ways between two devices are groups of their own: each way, sends and receives come in one order, but what one
// sends and what it receives are not ordered alike on both sides.
GroupKey pair_on(Stream stream, int from, int to) {
  const int way = from < to ? 0 : kControlChannel + 1;
  return {{std::min(from, to), std::max(from, to)}, static_cast<int>(stream) + way};
}

}  // namespace

GroupKey group_of(const Instruction& instruction, const Communicate& communicate, const Mesh& mesh, int position) {
  GroupKey key{{}, static_cast<int>(instruction.stream)};
  for (int member : mesh.group(position, communicate.axes)) key.devices.push_back(device_at(mesh, member));
  std::sort(key.devices.begin(), key.devices.end());
  return key;
}

GroupKey pair_of(const Program& program, TransferId transfer, int from, int to) {
  return pair_on(sending_stream(program, transfer), from, to);
}

std::vector<GroupKey> groups_of(const Program& program) {
  std::set<GroupKey> known;
  std::vector<GroupKey> groups;
  const auto add = [&](GroupKey key) {
    if (key.devices.size() > 1 && known.insert(key).second) groups.push_back(std::move(key));
  };
  std::set<std::tuple<MeshId, MeshAxes, Stream>> seen;
  for (const Instruction& instruction : program.instructions) {
    if (const auto* send = std::get_if<Send>(&instruction.what)) {
      const Transfer& transfer = program.transfers[send->transfer];
      const Mesh &from = program.meshes[program.buffers[transfer.from].layout.mesh],
                 &to = program.meshes[program.buffers[transfer.to].layout.mesh];
      for (const SliceMove& move : moves_of(program, transfer))
        if (const int a = device_at(from, move.from), b = device_at(to, move.to); a != b)
          add(pair_on(instruction.stream, a, b));
    }
    const auto* communicate = std::get_if<Communicate>(&instruction.what);
    if (!communicate || communicate->collective == Collective::Slice ||
        !seen.emplace(instruction.mesh, communicate->axes, instruction.stream).second)
      continue;
    const Mesh& mesh = program.meshes[instruction.mesh];
    for (int position = 0; position < mesh.size(); ++position)
      if (mesh.group_leader(position, communicate->axes) == position)
        add(group_of(instruction, *communicate, mesh, position));
  }
  GroupKey all{{}, kControlChannel};
  for (int device = 0; device < program.meshes[program.world].size(); ++device) all.devices.push_back(device);
  groups.push_back(std::move(all));
  return groups;
}

Exchange exchange_of(const Program& program, const Communicate& communicate, const Mesh& mesh, int position) {
  const bool scatters = communicate.collective == Collective::ReduceScatter;
  Exchange exchange;
  exchange.adds = scatters || communicate.collective == Collective::HaloSum;
  const std::vector<int> members =
      communicate.collective == Collective::Slice ? std::vector<int>{position} : mesh.group(position, communicate.axes);
  for (std::size_t buffer = 0; buffer < communicate.outputs.size(); ++buffer) {
    const Layout &before = program.buffers[communicate.inputs[buffer]].layout,
                 &after = program.buffers[communicate.outputs[buffer]].layout;
    // What `from` sends to `to`: in a reduction all that `to` will hold, otherwise what `from` has of it. What several
    // hold alike comes from the first of them.
    const auto parts_for = [&](int to) {
      const Region wanted = region_of(after, mesh, to);
      std::vector<Region> parts;
      std::int64_t elements = 0;
      for (int from : members) {
        Region part = scatters ? wanted : common(region_of(before, mesh, from), wanted);
        if (!exchange.adds && std::find(parts.begin(), parts.end(), part) != parts.end())
          for (std::vector<Range>& ranges : part.dims) ranges.clear();
        elements += part.elements();
        parts.push_back(std::move(part));
      }
      WEFT_CHECK(exchange.adds || elements == wanted.elements(),
                 "a collective does not bring as many elements as it must deliver");
      return parts;
    };
    const Region held = region_of(before, mesh, position), wanted = region_of(after, mesh, position);
    const std::size_t self =
        static_cast<std::size_t>(std::find(members.begin(), members.end(), position) - members.begin());
    const std::vector<Region> incoming = parts_for(position);
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (incoming[i].elements() > 0) {
        if (i == self)
          exchange.own.push_back(
              {buffer, runs_of(incoming[i], held), runs_of(incoming[i], wanted), incoming[i].shape()});
        else
          exchange.received.push_back(
              {device_at(mesh, members[i]), buffer, runs_of(incoming[i], wanted), incoming[i].shape()});
      }
      if (i == self) continue;
      const Region outgoing = parts_for(members[i])[self];
      if (outgoing.elements() > 0)
        exchange.sent.push_back({device_at(mesh, members[i]), buffer, runs_of(outgoing, held), outgoing.shape()});
    }
  }
  const auto by_device = [](const Part& a, const Part& b) { return a.device < b.device; };
  std::stable_sort(exchange.sent.begin(), exchange.sent.end(), by_device);
  std::stable_sort(exchange.received.begin(), exchange.received.end(), by_device);
  return exchange;
}

Exchange exchange_of(const Program& program, const Transfer& transfer, int device) {
  const Layout &before = program.buffers[transfer.from].layout, &after = program.buffers[transfer.to].layout;
  const Mesh &from_mesh = program.meshes[before.mesh], &to_mesh = program.meshes[after.mesh];
  Exchange exchange;
  for (const SliceMove& move : moves_of(program, transfer)) {
    const int from = device_at(from_mesh, move.from), to = device_at(to_mesh, move.to);
    if (from != device && to != device) continue;
    const Region held = region_of(before, from_mesh, move.from), wanted = region_of(after, to_mesh, move.to);
    const Region part = common(held, wanted);
    WEFT_CHECK(part.elements() == move.elements, "a transfer moves {} elements where {} overlap", move.elements,
               part.elements());
    if (from == to)
      exchange.own.push_back({0, runs_of(part, held), runs_of(part, wanted), part.shape()});
    else if (from == device)
      exchange.sent.push_back({to, 0, runs_of(part, held), part.shape()});
    else
      exchange.received.push_back({from, 0, runs_of(part, wanted), part.shape()});
  }
  return exchange;
}

}  // namespace weft::runtime
