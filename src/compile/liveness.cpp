// How long buffers live: every use is noted, and after the last one of a memory comes its free.
#include <algorithm>

#include "compile/lowering.h"

namespace weft {

void Lowering::use_all(InstructionId by) {
  const Instruction& instruction = program_.instructions[by];
  for (BufferId id : reads_of(program_, instruction))
    if (id.valid()) use(id, by, rank_);
  for (BufferId id : writes_of(program_, instruction)) {
    use(id, by, rank_);
    writer_[id] = by;
  }
}

void Lowering::use(BufferId id, InstructionId by, int rank) {
  const Stream stream = rank == kMain ? Stream::Compute : program_.instructions[by].stream;
  note_use({program_.buffers[id].memory, by, turn_, static_cast<std::int8_t>(rank), stream, phase_, guard_,
            weight_part_, ahead_});
}

// What stands of other groups in `last_use_at_` points nowhere, or to another's.
Lowering::LastUse& Lowering::last_use(BufferId buffer) {
  std::uint32_t& at = last_use_at_[buffer];
  if (at >= last_uses_.size() || last_uses_[at].of != buffer) {
    at = static_cast<std::uint32_t>(last_uses_.size());
    last_uses_.push_back({.of = buffer, .turn = {}, .anchor = {}});
  }
  return last_uses_[at];
}

void Lowering::note_use(const UseAt& use) {
  if (!once_) code_->uses.push_back(use);
  LastUse& last = last_use(use.buffer);
  const bool used_in_phase = last.turn.valid() && last.phase == use.phase;
  if (!used_in_phase) {
    last.guard = use.guard;
    last.weight_part = false;
    last.phase = use.phase;
  }
  last.weight_part = last.weight_part || use.weight_part;
  InstructionId& on_stream = last.by_stream[use.weight_part ? 1 : 0][static_cast<std::size_t>(use.stream)];
  const bool earlier = last.turn.valid() && std::pair(use.turn, int{use.rank}) < std::pair(last.turn, last.rank);
  if (earlier || (use.ahead && used_in_phase && !last.ahead)) {
    if (!on_stream.valid() || use.ahead) on_stream = use.by;
    return;
  }
  last.ahead = use.ahead;
  if (use.by.valid()) on_stream = use.by;
  last.turn = use.turn;
  last.anchor = use.by;
  last.rank = use.rank;
}

// A free after the last use of every memory that does not outlive the step. What weight gradients read is freed among
// them, so that a split backward frees it as well. It waits for the last use on every stream, and nobody waits for it.
void Lowering::add_frees() {
  begin_passage(0, MeshId());
  const auto touch = [&](TurnId turn) {
    if (touched_) touched_->turns.push_back(turn);
  };
  for (const auto& [id, shared, available] : code_->buffers) {
    const Buffer& buffer = program_.buffers[id];
    if (buffer.memory != id || outlives_micro_batches(buffer.kind)) continue;
    const LastUse& last = last_use(id);
    if (!last.turn.valid()) continue;
    FreeAt at{last.turn,
              last.anchor,
              {},
              id,
              buffer.tensor,
              last.guard,
              last.weight_part,
              last.by_stream,
              static_cast<std::uint32_t>(code_->instructions.size())};
    const FreeAt* old = nullptr;
    if (before_ && free_before_.contains(id) && free_before_[id] > 0) old = &before_->frees[free_before_[id] - 1];
    if (old && (old->guard != at.guard || old->weight_part != at.weight_part)) old = nullptr;
    if (old) before_->instructions[old->owned].shared = true;
    if (keeping_ && !touched_->chains && old && old->turn == at.turn && old->anchor == at.anchor &&
        old->uses == at.uses) {
      at.free = old->free;
      code_->instructions.push_back({at.free, true, {}});
    } else {
      at.free = own(old ? old->free : InstructionId());
      program_.instructions[at.free] = {buffer.layout.mesh, at.guard, at.weight_part, Free{id}, Stream::Compute, {}};
      touch(at.turn);
      if (old) touch(old->turn);
    }
    code_->frees.push_back(std::move(at));
  }
  end_passage();
  if (before_)
    for (const FreeAt& old : before_->frees)
      if (!before_->instructions[old.owned].shared) touch(old.turn);
  const auto earlier = [](const FreeAt& a, const FreeAt& b) { return a.turn < b.turn; };
  if (!std::is_sorted(code_->frees.begin(), code_->frees.end(), earlier))
    std::stable_sort(code_->frees.begin(), code_->frees.end(), earlier);
}

void Lowering::settle_free(const FreeAt& free) {
  if (!std::exchange(unsettled_[free.free], 0)) return;
  InstructionList& after = program_.instructions[free.free].after;
  after.clear();
  for (const auto& uses : free.uses)
    for (InstructionId use : uses) {
      if (!use.valid()) continue;
      if (joined_[use].valid()) use = joined_[use];
      if (std::find(after.begin(), after.end(), use) == after.end()) after.push_back(use);
    }
}

}  // namespace weft
