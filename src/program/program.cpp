#include "program/program.h"

#include <algorithm>

#include "base/check.h"

namespace weft {

std::string_view name_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::Input:
      return "input";
    case BufferKind::Scalar:
      return "scalar";
    case BufferKind::Parameter:
      return "parameter";
    case BufferKind::State:
      return "state";
    case BufferKind::Saved:
      return "saved";
    case BufferKind::Temporary:
      return "temporary";
    case BufferKind::Result:
      return "result";
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
    case Stream::SendBack:
      return "send-back";
    case Stream::Receive:
      return "receive";
    case Stream::ReceiveBack:
      return "receive-back";
    case Stream::CopyOut:
      return "copy-out";
    case Stream::CopyIn:
      return "copy-in";
  }
  return "?";
}

bool has_uneven_parts(const Program& program, const Communicate& communicate) {
  for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
    const Layout* const cut = cut_side(communicate.collective, program.buffers[communicate.inputs[i]].layout,
                                       program.buffers[communicate.outputs[i]].layout);
    if (cut && has_uneven_parts(*cut, communicate.axes)) return true;
  }
  return false;
}

PartSizes part_bytes(const Program& program, const Graph& graph, const Communicate& communicate) {
  PartSizes bytes;
  for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
    const Buffer &from = program.buffers[communicate.inputs[i]], &to = program.buffers[communicate.outputs[i]];
    bytes += bytes_of(sent_type(program, graph, communicate, communicate.inputs[i]),
                      part_sizes(*cut_side(communicate.collective, from.layout, to.layout), communicate.axes,
                                 program.meshes[from.layout.mesh]));
  }
  return bytes;
}

DType stored_type(const Program& program, const Graph& graph, BufferId buffer) {
  const Buffer& held = program.buffers[buffer];
  return held.narrow.value_or(graph.tensors()[held.tensor].type.dtype);
}

DType sent_type(const Program& program, const Graph& graph, const Communicate& communicate, BufferId buffer) {
  return communicate.wire.value_or(stored_type(program, graph, buffer));
}

std::span<const BufferId> reads_of(const Program& program, const Instruction& instruction) {
  if (const auto* compute = std::get_if<Compute>(&instruction.what)) return compute->inputs;
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) return communicate->inputs;
  if (const auto* send = std::get_if<Send>(&instruction.what)) return {&program.transfers[send->transfer].from, 1};
  if (const auto* sum = std::get_if<SumScalars>(&instruction.what)) return sum->inputs;
  if (const auto* copy = std::get_if<Copy>(&instruction.what)) return {&copy->from, 1};
  if (const auto* combine = std::get_if<Combine>(&instruction.what)) return combine->inputs;
  return {};
}

std::span<const BufferId> writes_of(const Program& program, const Instruction& instruction) {
  if (const auto* compute = std::get_if<Compute>(&instruction.what)) return compute->outputs;
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) return communicate->outputs;
  if (const auto* receive = std::get_if<Receive>(&instruction.what))
    return {&program.transfers[receive->transfer].to, 1};
  if (const auto* sum = std::get_if<SumScalars>(&instruction.what)) return sum->outputs;
  if (const auto* copy = std::get_if<Copy>(&instruction.what)) return {&copy->to, 1};
  if (const auto* combine = std::get_if<Combine>(&instruction.what)) return combine->outputs;
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

std::size_t body_of(const Program& program, const Schedule& schedule, std::size_t rank, const Action& action) {
  const std::size_t stage = program_stage(program, schedule, {static_cast<std::int32_t>(rank), action.chunk});
  return 2 * stage + (action.body == Body::Forward ? 0 : 1);
}

}  // namespace weft
