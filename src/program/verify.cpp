#include "program/verify.h"

#include <fmt/format.h>

#include "program/verify_parts.h"

namespace weft {

std::string described(const Program& program, const Graph& graph, BufferId buffer) {
  return fmt::format("buffer b{} of {}", buffer.index(), graph.name(program.buffers[buffer].tensor));
}

std::string described(const Program& program, const Graph& graph, InstructionId id) {
  const Instruction& instruction = program.instructions[id];
  const auto tensor = [&](BufferId buffer) { return graph.name(program.buffers[buffer].tensor); };
  std::string what;
  if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
    what = graph.name(compute->op);
  } else if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
    const std::string along = program.meshes[instruction.mesh].names_of(communicate->axes);
    what = fmt::format("{} over {}", name_of(communicate->collective), along.empty() ? "?" : along);
    if (!communicate->outputs.empty()) what += " of " + tensor(communicate->outputs.front());
  } else if (const auto* send = std::get_if<Send>(&instruction.what)) {
    what = "send of " + tensor(program.transfers[send->transfer].from);
  } else if (const auto* receive = std::get_if<Receive>(&instruction.what)) {
    what = "receive of " + tensor(program.transfers[receive->transfer].to);
  } else if (const auto* sum = std::get_if<SumScalars>(&instruction.what)) {
    what = "sum of scalars";
    if (!sum->outputs.empty()) what += " " + tensor(sum->outputs.front());
  } else if (const auto* copy = std::get_if<Copy>(&instruction.what)) {
    what = "copy of " + tensor(copy->from);
  } else if (const auto* combine = std::get_if<Combine>(&instruction.what)) {
    what = fmt::format("combine {}", name_of(combine->reducer));
    if (!combine->outputs.empty()) what += " of " + tensor(combine->outputs.front());
  } else if (std::holds_alternative<Wait>(instruction.what)) {
    what = "wait";
  } else if (const auto* free = std::get_if<Free>(&instruction.what)) {
    what = "free of " + tensor(free->buffer);
  }
  return fmt::format("#{} ({})", id.index(), what);
}

namespace {

// Every id refers to something that exists.
class Names {
 public:
  Names(const Program& program, const Graph& graph) : program_(program), graph_(graph) {}

  Status check() const {
    if (!program_.meshes.contains(program_.world)) return error("the world's mesh is not there");
    for (BufferId id : program_.buffers.ids()) {
      const Buffer& buffer = program_.buffers[id];
      if (!graph_.tensors().contains(buffer.tensor)) return error("buffer b{} is of no tensor", id.index());
      if (!program_.meshes.contains(buffer.layout.mesh)) return error("buffer b{} is on no mesh", id.index());
      if (!has(buffer.storage) || !has(buffer.memory))
        return error("buffer b{} shares memory with one that is not there", id.index());
      if (program_.buffers[buffer.memory].memory != buffer.memory ||
          program_.buffers[buffer.storage].memory != buffer.memory)
        return error("{}: the memory it looks at is not the one of b{}", described(program_, graph_, id),
                     buffer.storage.index());
    }
    for (TransferId id : program_.transfers.ids())
      if (!has(program_.transfers[id].from) || !has(program_.transfers[id].to))
        return error("transfer t{} is of no buffer", id.index());
    for (InstructionId id : program_.instructions.ids()) {
      const Instruction& instruction = program_.instructions[id];
      if (!program_.meshes.contains(instruction.mesh)) return error("#{} is on no mesh", id.index());
      if (!std::visit([&](const auto& what) { return has_all(what); }, instruction.what))
        return error("#{} names what is not there", id.index());
    }
    return check_bodies();
  }

 private:
  bool has(BufferId id) const { return program_.buffers.contains(id); }
  bool has(const BufferList& list) const {
    for (BufferId id : list)
      if (!has(id)) return false;
    return true;
  }
  bool has_all(const Compute& what) const {
    return graph_.ops().contains(what.op) && has(what.inputs) && has(what.outputs);
  }
  bool has_all(const Communicate& what) const { return has(what.inputs) && has(what.outputs); }
  bool has_all(const Send& what) const { return program_.transfers.contains(what.transfer); }
  bool has_all(const Receive& what) const { return program_.transfers.contains(what.transfer); }
  bool has_all(const SumScalars& what) const { return has(what.inputs) && has(what.outputs); }
  bool has_all(const Copy& what) const { return has(what.from) && has(what.to); }
  bool has_all(const Free& what) const { return has(what.buffer); }
  bool has_all(const Combine& what) const { return has(what.inputs) && has(what.outputs); }
  bool has_all(const Wait&) const { return true; }

  // Every instruction stands in at most one body; waits name instructions that stand in one; a transfer is sent once and
  // received once, in the same body.
  Status check_bodies() const {
    IdVec<InstructionId, char> placed(program_.instructions.size(), 0);
    IdVec<TransferId, int> sent(program_.transfers.size(), 0), received(program_.transfers.size(), 0);
    IdVec<TransferId, std::size_t> sent_in(program_.transfers.size(), 0), received_in(program_.transfers.size(), 0);
    const auto place = [&](std::size_t body) -> Status {
      for (InstructionId id : body_at(program_, body)) {
        if (!program_.instructions.contains(id)) return error("a body names #{}, which is not there", id.index());
        if (placed[id]++) return error("{} stands in the bodies twice", described(program_, graph_, id));
        const Instruction& instruction = program_.instructions[id];
        if (const auto* send = std::get_if<Send>(&instruction.what)) {
          ++sent[send->transfer];
          sent_in[send->transfer] = body;
          if (program_.buffers[program_.transfers[send->transfer].from].layout.mesh != instruction.mesh)
            return error("transfer t{} is sent by another mesh than holds it", send->transfer.index());
        }
        if (const auto* receive = std::get_if<Receive>(&instruction.what)) {
          ++received[receive->transfer];
          received_in[receive->transfer] = body;
          if (program_.buffers[program_.transfers[receive->transfer].to].layout.mesh != instruction.mesh)
            return error("transfer t{} is received by another mesh than needs it", receive->transfer.index());
        }
      }
      return Ok{};
    };
    for (std::size_t body = 0; body < body_count(program_); ++body) WEFT_TRY_OK(place(body));
    WEFT_TRY_OK(check_scalars());
    for (TransferId id : program_.transfers.ids()) {
      if (sent[id] != 1 || received[id] != 1)
        return error("transfer t{} is sent {} times and received {} times", id.index(), sent[id], received[id]);
      if (sent_in[id] != received_in[id])
        return error("transfer t{} is received in another body than it is sent in: both sides must agree on its turn",
                     id.index());
    }
    for (InstructionId id : program_.instructions.ids())
      for (InstructionId before : program_.instructions[id].after) {
        if (!program_.instructions.contains(before) || (placed[id] && !placed[before]))
          return error("{} waits for #{}, which is never issued", described(program_, graph_, id), before.index());
        if (std::holds_alternative<Free>(program_.instructions[before].what))
          return error("{} waits for {}: nothing may wait for a free", described(program_, graph_, id),
                       described(program_, graph_, before));
      }
    return Ok{};
  }

  // Scalars that are given with a step are not written; results are written once, in the step.
  Status check_scalars() const {
    IdVec<BufferId, int> written(program_.buffers.size(), 0), in_step(program_.buffers.size(), 0);
    for (const Instruction& instruction : program_.instructions)
      for (BufferId id : writes_of(program_, instruction)) ++written[id];
    for (InstructionId id : program_.step)
      for (BufferId each : writes_of(program_, program_.instructions[id])) ++in_step[each];
    for (BufferId id : program_.buffers.ids()) {
      const BufferKind kind = program_.buffers[id].kind;
      if (kind == BufferKind::Scalar && written[id] > 0)
        return error("{} is given with the step, and written", described(program_, graph_, id));
      if (kind == BufferKind::Result && (written[id] != 1 || in_step[id] != 1))
        return error("{} is a result that the step does not write, or not once", described(program_, graph_, id));
    }
    return Ok{};
  }

  const Program& program_;
  const Graph& graph_;
};

}  // namespace

Status verify(const Program& program, const Graph& graph, const Schedule& schedule) {
  WEFT_TRY_OK(Names(program, graph).check());
  WEFT_TRY_OK(check_layouts(program, graph));
  WEFT_TRY_OK(check_schedule(schedule));
  WEFT_TRY(const std::vector<RankClass> classes, rank_classes(program, schedule));
  const std::vector<std::vector<IssuedBody>> issued = issue_order(program, schedule);
  const std::vector<IssuedBody> step = {issued.front().back()};
  std::vector<ClassPlay> plays;
  for (const RankClass& each : classes) {
    const std::vector<IssuedBody>& own = each.rank < 0 ? step : issued[static_cast<std::size_t>(each.rank)];
    WEFT_TRY(ClassPlay play, play_class(program, graph, own, schedule.micro_batches, each));
    plays.push_back(std::move(play));
  }
  return check_meetings(program, graph, classes, plays, schedule.micro_batches);
}

}  // namespace weft
