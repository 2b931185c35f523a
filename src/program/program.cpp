#include "program/program.h"

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

const std::vector<InstructionId>& body_of(const Program& program, const Schedule& schedule, std::size_t rank,
                                          const Action& action) {
  const std::vector<Place>& route =
      schedule.routes[static_cast<std::size_t>(schedule.route_of[static_cast<std::size_t>(action.micro_batch)])];
  const Place here{static_cast<std::int32_t>(rank), action.chunk};
  const auto stage = static_cast<std::size_t>(std::find(route.begin(), route.end(), here) - route.begin());
  WEFT_CHECK(stage < program.stages.size(), "the schedule has {} stages, the program {}", route.size(),
             program.stages.size());
  return action.body == Body::Forward ? program.stages[stage].forward : program.stages[stage].backward;
}

bool plays(const Action& action, const Instruction& instruction, std::int32_t micro_batches) {
  if (action.body == Body::BackwardInput && instruction.weight_part) return false;
  if (action.body == Body::BackwardWeight && !instruction.weight_part) return false;
  if (instruction.guard == Guard::FirstMicroBatch) return action.micro_batch == 0;
  return instruction.guard != Guard::LastMicroBatch || action.micro_batch + 1 == micro_batches;
}

}  // namespace weft
