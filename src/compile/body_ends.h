// What waits at the end of a body, and for what.
//
// Computation, where transfers do not run beside it: for what the body has sent to have arrived. Copies from the host:
// for gradients that the body has written there, which the next micro-batch reads again to add its own.
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

  // The turn issues these now, in this order, and nothing else.
  template <class Instructions>
  void turn_issues(TurnId turn, Phase phase, const Instructions& list) {
    forget(turn, phase);
    for (const auto& each : list) note(turn, phase, each.instruction);
  }
  // The waits at the end of the phase's bodies; `overwrites(id)` is told before one of them is changed.
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
  // From here on changes can be taken back; or need not be any more.
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
