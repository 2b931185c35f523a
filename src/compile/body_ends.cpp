#include "compile/body_ends.h"

#include <algorithm>

namespace weft {

void BodyEnds::remember(const End& end, const Waiting& waiting) { before_.try_emplace(end, waiting.awaited); }

void BodyEnds::undo() {
  for (auto& [end, awaited] : before_) ends_[end].awaited = std::move(awaited);
  before_.clear();
}

std::pair<BodyEnds::Awaited::iterator, BodyEnds::Awaited::iterator> BodyEnds::of_turn(Awaited& awaited, TurnId turn) {
  const auto first = std::lower_bound(awaited.begin(), awaited.end(), turn,
                                      [](const auto& each, TurnId at) { return each.first < at; });
  auto last = first;
  while (last != awaited.end() && last->first == turn) ++last;
  return {first, last};
}

void BodyEnds::forget(TurnId turn, Phase phase) {
  for (auto& [end, waiting] : ends_) {
    if (end.phase != phase) continue;
    const auto [first, last] = of_turn(waiting.awaited, turn);
    if (first == last) continue;
    remember(end, waiting);
    waiting.awaited.erase(first, last);
  }
}

void BodyEnds::note(TurnId turn, Phase phase, InstructionId id) {
  const Instruction& instruction = program_.instructions[id];
  End end{phase, instruction.mesh, instruction.weight_part, Stream::Compute};
  if (const auto* copy = std::get_if<Copy>(&instruction.what)) {
    const Buffer& to = program_.buffers[copy->to];
    if (!to.on_host || program_.buffers[to.memory].kind != BufferKind::State) return;
    end.waits = Stream::CopyIn;
  } else if (!std::holds_alternative<Send>(instruction.what) || options_.transfers.overlap) {
    return;
  }
  Waiting& waiting = ends_[end];
  remember(end, waiting);
  waiting.awaited.insert(of_turn(waiting.awaited, turn).second, {turn, id});
}

// Waits for the last instruction only: those before it on the same stream are complete then.
Instruction BodyEnds::make_wait(const End& end, const Waiting& waiting) {
  return {.mesh = end.mesh,
          .weight_part = end.weight_part,
          .what = Wait{},
          .stream = end.waits,
          .after = {waiting.awaited.back().second}};
}

}  // namespace weft
