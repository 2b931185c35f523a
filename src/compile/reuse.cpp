#include "compile/reuse.h"

namespace weft {

bool Reuse::stays(const OperandUse& event, const Passage& old) const {
  const Turn& turn = sequence_.turns()[event.turn];
  if (differences_.changed(turn.op) || old.anew) return false;
  if (differences_.at(event.tensor, old.mesh)) return !event.output && finds_the_same(event, old);
  if (event.output) {
    const int viewed = graph_.signature(turn.op).outputs[event.operand].aliases;
    return viewed < 0 || !differences_.at(graph_.inputs(turn.op)[static_cast<std::size_t>(viewed)], old.mesh);
  }
  if (!old.source.valid()) return true;
  const BufferId source = buffers_.elsewhere(event.tensor, old.mesh);
  return source == old.source && !differences_.at(event.tensor, program_.buffers[source].layout.mesh);
}

// Other buffers are available than before, but the one that the event read is still the first in the layout wanted.
bool Reuse::finds_the_same(const OperandUse& event, const Passage& old) const {
  if (old.begin.buffer != old.end.buffer) return false;
  const BufferId found = group_.before->events[passages_.event()].buffer;
  if (differences_.rewritten(found)) return false;
  for (BufferId id : buffers_.of(event.tensor))
    if (buffers_.usable(id) && !program_.buffers[id].on_host &&
        program_.buffers[id].layout == program_.buffers[found].layout)
      return id == found;
  return false;
}

void Reuse::keep(const Passage& old) {
  GroupCode &before = *group_.before, &code = *group_.code;
  const bool step = position_.phase == Phase::Step;
  const Passage::At begin = passages_.here();
  for (std::uint32_t i = old.begin.buffer; i < old.end.buffer; ++i) {
    before.buffers[i].shared = true;
    const Owned<BufferId>& owned = code.buffers.emplace_back(before.buffers[i]);
    if (!owned.available.valid()) continue;
    buffers_.of(owned.available).push_back(owned.id);
    if (group_.of_parameter && !step) homes_.keep(owned.available, owned.id);
  }
  for (std::uint32_t i = old.begin.instruction; i < old.end.instruction; ++i) {
    before.instructions[i].shared = true;
    code.instructions.push_back(before.instructions[i]);
    if (step) position_.sink->push_back(before.instructions[i].id);
  }
  for (std::uint32_t i = old.begin.transfer; i < old.end.transfer; ++i) {
    before.transfers[i].shared = true;
    code.transfers.push_back(before.transfers[i]);
  }
  for (std::uint32_t i = old.begin.use; i < old.end.use; ++i) liveness_.note(before.uses[i]);
  for (std::uint32_t i = old.begin.chain; i < old.end.chain; ++i) code.chains.push_back(before.chains[i]);
  passages_.keep(old, begin);
}

}  // namespace weft
