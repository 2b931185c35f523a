#include "program/memory.h"

#include <algorithm>
#include <set>

#include "program/issue_order.h"

namespace weft {
namespace {

Bytes bytes_of_buffer(const Program& program, const Graph& graph, BufferId id) {
  const Buffer& buffer = program.buffers[id];
  return {bytes_of(graph.tensors()[buffer.tensor].type.dtype,
                   largest_local_elements(buffer.layout, program.meshes[buffer.layout.mesh]))};
}

bool kept(BufferKind kind) { return kind == BufferKind::Parameter || kind == BufferKind::State; }

}  // namespace

std::vector<HeldBytes> peak_memory(const Program& program, const TrainingGraph& training, const Schedule& schedule) {
  const Graph& graph = training.graph;
  std::set<TensorId> gradients;
  for (const auto& [parameter, sum] : training.accumulated) gradients.insert(graph.tensors()[sum].storage);

  // Memory that a saved view looks at is saved, whatever it was made as.
  IdVec<BufferId, char> saved(program.buffers.size(), 0);
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind == BufferKind::Saved) saved[buffer.memory] = 1;

  const IdVec<MeshId, std::int32_t> rank_of = ranks_of_meshes(program, schedule);
  const std::vector<std::vector<IssuedBody>> issued = issue_order(program, schedule);
  std::vector<HeldBytes> peaks;
  for (std::int32_t rank = 0; rank < schedule.ranks; ++rank) {
    HeldBytes now;
    for (BufferId id : program.buffers.ids()) {
      const Buffer& buffer = program.buffers[id];
      if (buffer.memory != id || buffer.on_host || !kept(buffer.kind) || rank_of[buffer.layout.mesh] != rank) continue;
      Bytes& kind = buffer.kind == BufferKind::Parameter ? now.parameters
                    : gradients.contains(buffer.tensor)  ? now.gradients
                                                         : now.optimizer;
      kind += bytes_of_buffer(program, graph, id);
    }
    HeldBytes peak = now;
    std::set<std::pair<BufferId, std::int32_t>> held;
    const auto account = [&](BufferId id, std::int64_t sign) {
      Bytes& kind = saved[id] ? now.activations : now.buffers;
      kind += bytes_of_buffer(program, graph, id) * sign;
    };
    const auto play = [&](const Instruction& instruction, std::int32_t micro_batch) {
      for (const auto& list : {reads_of(program, instruction), writes_of(program, instruction)})
        for (BufferId id : list) {
          const BufferId root = program.buffers[id].memory;
          if (!kept(program.buffers[root].kind) && !program.buffers[root].on_host &&
              held.insert({root, micro_batch}).second)
            account(root, 1);
        }
      if (now.total() > peak.total()) peak = now;
      if (const auto* free = std::get_if<Free>(&instruction.what))
        if (held.erase({free->buffer, micro_batch}) > 0) account(free->buffer, -1);
    };
    for (const IssuedBody& each : issued[static_cast<std::size_t>(rank)])
      for (InstructionId id : body_at(program, each.body))
        if (const Instruction& instruction = program.instructions[id];
            rank_of[instruction.mesh] == rank && plays(each, instruction, schedule.micro_batches))
          play(instruction, each.micro_batch);
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace weft
