#include "compile/liveness.h"

#include <algorithm>

namespace weft {
namespace {

bool outlives_the_step(BufferKind kind) { return kind == BufferKind::Parameter || kind == BufferKind::State; }

struct LastUse {
  std::ptrdiff_t position = -1;  // in the body
  bool by_weight_part = false;   // some instruction of the weight part uses it
  Guard guard = Guard::Always;   // of the instruction that uses it first: what is made once is freed once
};

// The last use in this body of every buffer's memory root.
IdVec<BufferId, LastUse> last_uses(const Program& program, const std::vector<InstructionId>& body) {
  IdVec<BufferId, LastUse> uses(program.buffers.size());
  for (std::size_t i = 0; i < body.size(); ++i) {
    const Instruction& instruction = program.instructions[body[i]];
    for (const auto& list : {reads_of(program, instruction), writes_of(program, instruction)})
      for (BufferId id : list) {
        LastUse& use = uses[program.buffers[id].memory];
        if (use.position < 0) use.guard = instruction.guard;
        use.position = static_cast<std::ptrdiff_t>(i);
        use.by_weight_part = use.by_weight_part || instruction.weight_part;
      }
  }
  return uses;
}

// The body with a free after the last use of each root in `ending`.
void insert_frees(Program& program, std::vector<InstructionId>& body, const IdVec<BufferId, char>& ending) {
  const IdVec<BufferId, LastUse> uses = last_uses(program, body);
  std::vector<std::vector<BufferId>> freed(body.size());
  for (BufferId id : uses.ids())
    if (ending[id] && uses[id].position >= 0) freed[static_cast<std::size_t>(uses[id].position)].push_back(id);
  std::vector<InstructionId> result;
  result.reserve(body.size());
  for (std::size_t i = 0; i < body.size(); ++i) {
    result.push_back(body[i]);
    for (BufferId id : freed[i])
      result.push_back(program.instructions.push_back(
          {program.buffers[id].layout.mesh, uses[id].guard, uses[id].by_weight_part, Free{id}}));
  }
  body = std::move(result);
}

}  // namespace

void add_frees(Program& program) {
  const IdVec<BufferId, LastUse> step = last_uses(program, program.step);
  for (StageProgram& stage : program.stages) {
    const IdVec<BufferId, LastUse> forward = last_uses(program, stage.forward),
                                   backward = last_uses(program, stage.backward);
    IdVec<BufferId, char> ends_forward(program.buffers.size(), 0), ends_backward(program.buffers.size(), 0);
    for (BufferId id : program.buffers.ids()) {
      if (program.buffers[id].memory != id || outlives_the_step(program.buffers[id].kind) || step[id].position >= 0)
        continue;
      ends_backward[id] = backward[id].position >= 0;
      ends_forward[id] = forward[id].position >= 0 && !ends_backward[id];
    }
    insert_frees(program, stage.forward, ends_forward);
    insert_frees(program, stage.backward, ends_backward);
  }
  IdVec<BufferId, char> ends_step(program.buffers.size(), 0);
  for (BufferId id : program.buffers.ids())
    ends_step[id] = program.buffers[id].memory == id && !outlives_the_step(program.buffers[id].kind);
  insert_frees(program, program.step, ends_step);
}

}  // namespace weft
