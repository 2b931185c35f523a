#include "program/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace weft {

std::string_view name_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::Input:
      return "input";
    case BufferKind::Parameter:
      return "parameter";
    case BufferKind::State:
      return "state";
    case BufferKind::Saved:
      return "saved";
    case BufferKind::Temporary:
      return "temporary";
  }
  return "?";
}

std::string_view name_of(Stream stream) {
  switch (stream) {
    case Stream::Compute:
      return "compute";
    case Stream::Tensor:
      return "tensor";
    case Stream::Data:
      return "data";
    case Stream::Send:
      return "send";
    case Stream::Receive:
      return "receive";
    case Stream::Copy:
      return "copy";
  }
  return "?";
}

std::vector<BufferId> reads_of(const Program& program, const Instruction& instruction) {
  if (const auto* compute = std::get_if<Compute>(&instruction.what)) return compute->inputs;
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) return communicate->inputs;
  if (const auto* send = std::get_if<Send>(&instruction.what)) return {program.transfers[send->transfer].from};
  if (const auto* sum = std::get_if<SumScalars>(&instruction.what)) return sum->inputs;
  if (const auto* copy = std::get_if<Copy>(&instruction.what)) return {copy->from};
  return {};
}

std::vector<BufferId> writes_of(const Program& program, const Instruction& instruction) {
  if (const auto* compute = std::get_if<Compute>(&instruction.what)) return compute->outputs;
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) return communicate->outputs;
  if (const auto* receive = std::get_if<Receive>(&instruction.what)) return {program.transfers[receive->transfer].to};
  if (const auto* sum = std::get_if<SumScalars>(&instruction.what)) return {sum->output};
  if (const auto* copy = std::get_if<Copy>(&instruction.what)) return {copy->to};
  return {};
}

std::size_t program_stage(const Program& program, const Schedule& schedule, Place place) {
  std::size_t first = 0;
  for (const std::vector<Place>& route : schedule.routes) {
    const auto found = std::find(route.begin(), route.end(), place);
    if (found != route.end()) {
      const std::size_t stage = first + static_cast<std::size_t>(found - route.begin());
      WEFT_CHECK(stage < program.stages.size(), "the schedule has {} stages, the program {}", stage + 1,
                 program.stages.size());
      return stage;
    }
    first += route.size();
  }
  WEFT_CHECK(false, "rank {} has no chunk {}", place.rank, place.chunk);
}

const std::vector<InstructionId>& body_of(const Program& program, const Schedule& schedule, std::size_t rank,
                                          const Action& action) {
  const std::size_t stage = program_stage(program, schedule, {static_cast<std::int32_t>(rank), action.chunk});
  return action.body == Body::Forward ? program.stages[stage].forward : program.stages[stage].backward;
}

bool plays(const Action& action, const Instruction& instruction, std::int32_t micro_batches) {
  if (action.body == Body::BackwardInput && instruction.weight_part) return false;
  if (action.body == Body::BackwardWeight && !instruction.weight_part) return false;
  if (instruction.guard == Guard::FirstMicroBatch) return action.micro_batch == 0;
  return instruction.guard != Guard::LastMicroBatch || action.micro_batch + 1 == micro_batches;
}

std::string print(const Program& program, const Graph& graph) {
  std::string text;
  for (MeshId id : program.meshes.ids()) {
    text += fmt::format("mesh m{}", id.index());
    for (const MeshAxis& axis : program.meshes[id].axes()) text += fmt::format(" {}={}", axis.name, axis.size);
    text += fmt::format(": {} devices\n", program.meshes[id].size());
  }
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    text += fmt::format("buffer {} {} {} {}\n", id.index(), name_of(buffer.kind), graph.name(buffer.tensor),
                        print(buffer.layout, program.meshes[buffer.layout.mesh]));
  }
  const auto list = [](const std::vector<BufferId>& buffers) {
    std::vector<std::uint32_t> indices;
    for (BufferId id : buffers) indices.push_back(id.index());
    return fmt::format("{}", fmt::join(indices, ", "));
  };
  const auto body = [&](std::string_view name, const std::vector<InstructionId>& instructions) {
    text += fmt::format("{}:\n", name);
    for (InstructionId id : instructions) {
      const Instruction& instruction = program.instructions[id];
      const Mesh& mesh = program.meshes[instruction.mesh];
      text += instruction.guard == Guard::Always            ? "  "
              : instruction.guard == Guard::FirstMicroBatch ? "  first: "
                                                            : "  last: ";
      if (const auto* compute = std::get_if<Compute>(&instruction.what))
        text += fmt::format("{} = {} {}({})\n", list(compute->outputs), name_of(graph.kind(compute->op)),
                            graph.name(compute->op), list(compute->inputs));
      else if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
        text +=
            fmt::format("{} = {} over {} ({})\n", list(communicate->outputs), name_of(communicate->collective),
                        mesh.axes()[static_cast<std::size_t>(communicate->mesh_axis)].name, list(communicate->inputs));
      else if (const auto* send = std::get_if<Send>(&instruction.what))
        text += fmt::format("send t{} ({})\n", send->transfer.index(), program.transfers[send->transfer].from.index());
      else if (const auto* receive = std::get_if<Receive>(&instruction.what))
        text += fmt::format("{} = receive t{}\n", program.transfers[receive->transfer].to.index(),
                            receive->transfer.index());
      else if (const auto* copy = std::get_if<Copy>(&instruction.what))
        text += fmt::format("{} = copy({})\n", copy->to.index(), copy->from.index());
      else if (const auto* free = std::get_if<Free>(&instruction.what))
        text += fmt::format("free {}\n", free->buffer.index());
      else if (const auto* sum = std::get_if<SumScalars>(&instruction.what))
        text += fmt::format("{} = sum scalars({})\n", sum->output.index(), list(sum->inputs));
    }
  };
  for (std::size_t stage = 0; stage < program.stages.size(); ++stage) {
    body(fmt::format("stage {} forward", stage), program.stages[stage].forward);
    body(fmt::format("stage {} backward", stage), program.stages[stage].backward);
  }
  body("step", program.step);
  return text;
}

}  // namespace weft
