// The waits at the end of a body.
//
// Where a stack does not overlap transfers with computation, the compute stream waits until all that the body has sent
// has arrived. The stream of copies from the host waits until the body's gradients have been written there, because the
// next micro-batch reads them again to add its own.
#pragma once

#include <map>
#include <vector>

#include "compile/compile.h"
#include "compile/numbering.h"

namespace weft {

class BodyEnds {
 public:
  // All are kept by reference.
  BodyEnds(const CompileOptions& options, Program& program, Numbering& numbering)
      : options_(options), program_(program), numbering_(numbering) {}

  // Replaces what the turn issues by this list, in its order.
  template <class Instructions>
  void turn_issues(TurnId turn, Phase phase, const Instructions& list) {
    forget(turn, phase);
    for (const auto& each : list) note(turn, phase, each.instruction);
  }
  // The waits at the end of the phase's bodies; `overwrites(id)` is called before one of them is changed.
  template <class Overwrites>
  std::vector<InstructionId> waits(Phase phase, const Overwrites& overwrites) {
    std::vector<InstructionId> list;
    for (auto& [end, waiting] : ends_) {
      if (end.phase != phase || waiting.awaited.empty()) continue;
      const Instruction wait = make_wait(end, waiting);
      if (!waiting.wait.valid()) waiting.wait = numbering_.new_instruction(wait);
      if (program_.instructions[waiting.wait] != wait) {
        overwrites(waiting.wait);
        program_.instructions[waiting.wait] = wait;
      }
      list.push_back(waiting.wait);
    }
    return list;
  }
  // `undo` returns to the state at the last call of this.
  void begin_change() { before_.clear(); }
  void undo();

 private:
  struct End {
    Phase phase{};
    MeshId mesh;
    bool weight_part = false;
    Stream waits{};
    auto operator<=>(const End&) const = default;
  };
  using Awaited = std::vector<std::pair<TurnId, InstructionId>>;  // by turn, all of one stream
  struct Waiting {
    InstructionId wait;
    Awaited awaited;
  };

  static std::pair<Awaited::iterator, Awaited::iterator> of_turn(Awaited& awaited, TurnId turn);
  void forget(TurnId turn, Phase phase);
  void note(TurnId turn, Phase phase, InstructionId id);
  void remember(const End& end, const Waiting& waiting);
  static Instruction make_wait(const End& end, const Waiting& waiting);

  const CompileOptions& options_;
  Program& program_;
  Numbering& numbering_;
  std::map<End, Waiting> ends_;
  std::map<End, Awaited> before_;  // of those that the open change has changed
};

}  // namespace weft
