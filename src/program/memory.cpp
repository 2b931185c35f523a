#include "program/memory.h"

#include <algorithm>
#include <set>

#include "program/issue_order.h"

namespace weft {
namespace {

Bytes bytes_of_buffer(const Program& program, const Graph& graph, BufferId id) {
  const Buffer& buffer = program.buffers[id];
  return {bytes_of(stored_type(program, graph, id),
                   largest_local_elements(buffer.layout, program.meshes[buffer.layout.mesh]))};
}

bool kept(BufferKind kind) { return outlives_micro_batches(kind); }

}  // namespace

IdVec<BufferId, char> made_in_sums(const Program& program, const Graph& graph) {
  IdVec<BufferId, char> begins(program.buffers.size(), 0);
  for (const Instruction& instruction : program.instructions) {
    const auto* compute = std::get_if<Compute>(&instruction.what);
    if (!compute || !compute->begins) continue;
    const BufferId term = compute->inputs[1];
    const Buffer &made = program.buffers[term], &sum = program.buffers[compute->outputs[0]];
    begins[term] = made.memory == term && made.kind == BufferKind::Temporary && sum.kind == BufferKind::State &&
                   !sum.on_host && graph.uses(made.tensor).size() == 1;
  }
  return begins;
}

std::vector<HeldBytes> peak_memory(const Program& program, const TrainingGraph& training, const Schedule& schedule,
                                   const std::optional<Program>& last) {
  const Graph& graph = training.graph;
  std::set<TensorId> gradients;
  for (const auto& [parameter, sum] : training.accumulated) gradients.insert(graph.tensors()[sum].storage);

  // The memory of a saved view counts as saved, whatever kind its buffer was made as.
  IdVec<BufferId, char> saved(program.buffers.size(), 0);
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind == BufferKind::Saved) saved[buffer.memory] = 1;

  const IdVec<BufferId, char> begins = made_in_sums(program, graph);
  const IdVec<MeshId, std::int32_t> rank_of = ranks_of_meshes(program, schedule);
  const std::vector<std::vector<IssuedBody>> issued = issue_order(program, schedule);
  std::vector<HeldBytes> peaks;
  for (std::int32_t rank = 0; rank < schedule.ranks; ++rank) {
    HeldBytes now;
    for (BufferId id : program.buffers.ids()) {
      const Buffer& buffer = program.buffers[id];
      if (buffer.memory != id || buffer.on_host || !kept(buffer.kind) || rank_of[buffer.layout.mesh] != rank) continue;
      Bytes& kind = buffer.kind == BufferKind::Parameter                                    ? now.parameters
                    : buffer.kind != BufferKind::State || sums_losses(graph, buffer.tensor) ? now.buffers
                    : gradients.contains(buffer.tensor)                                     ? now.gradients
                                                                                            : now.optimizer;
      kind += bytes_of_buffer(program, graph, id);
    }
    HeldBytes peak = now;
    std::set<std::pair<BufferId, std::int32_t>> held;
    const auto account = [&](BufferId id, std::int32_t micro_batch, std::int64_t sign) {
      Bytes& kind = saved[id] ? now.activations : now.buffers;
      const bool smaller = last && micro_batch + 1 == schedule.micro_batches;
      kind += bytes_of_buffer(smaller ? *last : program, graph, id) * sign;
    };
    const auto play = [&](const Instruction& instruction, std::int32_t micro_batch, bool first) {
      for (const auto& list : {reads_of(program, instruction), writes_of(program, instruction)})
        for (BufferId id : list) {
          const BufferId root = program.buffers[id].memory;
          if (!kept(program.buffers[root].kind) && !program.buffers[root].on_host && !(first && begins[root]) &&
              held.insert({root, micro_batch}).second)
            account(root, micro_batch, 1);
        }
      HeldBytes most = now;  // while it runs
      if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
        most.buffers.value += staging_bytes(program, graph, *communicate, [&](BufferId id) {
          return bytes_of_buffer(last && micro_batch + 1 == schedule.micro_batches ? *last : program, graph, id).value;
        });
      if (most.total() > peak.total()) peak = most;
      if (const auto* free = std::get_if<Free>(&instruction.what))
        if (held.erase({free->buffer, micro_batch}) > 0) account(free->buffer, micro_batch, -1);
    };
    for (const IssuedBody& each : issued[static_cast<std::size_t>(rank)])
      for (InstructionId id : body_at(program, each.body))
        if (const Instruction& instruction = program.instructions[id];
            rank_of[instruction.mesh] == rank && plays(each, instruction))
          play(instruction, each.micro_batch, each.micro_batch == each.visits.first);
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace weft
