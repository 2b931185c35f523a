#include "compile/liveness.h"

#include <algorithm>

namespace weft {

void Liveness::begin_change() {
  const std::vector<FreeAt>& frees = group_.before->frees;
  free_before_.resize(program_.buffers.size());
  for (std::size_t i = 0; i < frees.size(); ++i) free_before_[frees[i].buffer] = static_cast<std::uint32_t>(i + 1);
}

void Liveness::end_change() {
  for (const FreeAt& free : group_.before->frees) free_before_[free.buffer] = 0;
}

void Liveness::use(BufferId id, InstructionId by, InTurn in_turn) {
  const Stream stream = in_turn == InTurn::Own ? Stream::Compute : program_.instructions[by].stream;
  note({program_.buffers[id].memory, by, position_.turn, in_turn, stream, position_.phase, position_.guard,
        position_.weight_part, position_.ahead});
}

// `last_use_at_` is not cleared between groups: what it has of another group points nowhere, or to another buffer.
Liveness::LastUse& Liveness::last_use(BufferId buffer) {
  if (!last_use_at_.contains(buffer)) last_use_at_.resize(program_.buffers.size());
  std::uint32_t& at = last_use_at_[buffer];
  if (at >= last_uses_.size() || last_uses_[at].of != buffer) {
    at = static_cast<std::uint32_t>(last_uses_.size());
    last_uses_.push_back({.of = buffer});
  }
  return last_uses_[at];
}

void Liveness::note(const UseAt& use) {
  if (!group_.once) group_.code->uses.push_back(use);
  LastUse& last = last_use(use.buffer);
  const bool used_in_phase = last.turn.valid() && last.phase == use.phase;
  if (!used_in_phase) {
    last.guard = use.guard;
    last.weight_part = false;
    last.phase = use.phase;
  }
  last.weight_part = last.weight_part || use.weight_part;
  InstructionId& on_stream = last.by_stream[use.weight_part ? 1 : 0][static_cast<std::size_t>(use.stream)];
  const bool earlier = last.turn.valid() && std::pair(use.turn, use.in_turn) < std::pair(last.turn, last.in_turn);
  if (earlier || (use.ahead && used_in_phase && !last.ahead)) {
    if (!on_stream.valid() || use.ahead) on_stream = use.by;
    return;
  }
  last.ahead = use.ahead;
  if (use.by.valid()) on_stream = use.by;
  last.turn = use.turn;
  last.anchor = use.by;
  last.in_turn = use.in_turn;
}

void Liveness::add_frees() {
  passages_.begin(0, MeshId());
  GroupCode &code = *group_.code, *const before = group_.before;
  const auto touch = [&](TurnId turn) {
    if (group_.touched) group_.touched->turns.push_back(turn);
  };
  for (const auto& [id, shared, available] : code.buffers) {
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
              static_cast<std::uint32_t>(code.instructions.size())};
    const FreeAt* old = nullptr;
    if (before && free_before_.contains(id) && free_before_[id] > 0) old = &before->frees[free_before_[id] - 1];
    if (old && (old->guard != at.guard || old->weight_part != at.weight_part)) old = nullptr;
    if (old) before->instructions[old->owned].shared = true;
    if (group_.keeps && !group_.touched->chains && old && old->turn == at.turn && old->anchor == at.anchor &&
        old->uses == at.uses) {
      at.free = old->free;
      code.instructions.push_back({at.free, true, {}});
    } else {
      at.free = numbering_.own(old ? old->free : InstructionId());
      program_.instructions[at.free] = {buffer.layout.mesh, at.guard, at.weight_part, Free{id}, Stream::Compute, {}};
      touch(at.turn);
      if (old) touch(old->turn);
    }
    code.frees.push_back(std::move(at));
  }
  passages_.end();
  if (before)
    for (const FreeAt& old : before->frees)
      if (!before->instructions[old.owned].shared) touch(old.turn);
  const auto earlier = [](const FreeAt& a, const FreeAt& b) { return a.turn < b.turn; };
  if (!std::is_sorted(code.frees.begin(), code.frees.end(), earlier))
    std::stable_sort(code.frees.begin(), code.frees.end(), earlier);
}

}  // namespace weft
