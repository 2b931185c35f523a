// How long buffers live: every use of a buffer's memory is noted while a group is lowered, and after the last one comes
// its free.
#pragma once

#include <vector>

#include "compile/passages.h"

namespace weft {

class Liveness {
 public:
  // All are kept by reference.
  Liveness(Program& program, const CurrentGroup& group, const Position& position, Numbering& numbering,
           Passages& passages)
      : program_(program), group_(group), position_(position), numbering_(numbering), passages_(passages) {}

  // Forgets the uses noted for another group.
  void begin_code() { last_uses_.clear(); }
  // Indexes the frees that the group had before the change, and forgets them again.
  void begin_change();
  void end_change();

  // At the current position. `by` is invalid where an optimizer reads a scalar that all of them read.
  void use(BufferId buffer, InstructionId by, InTurn in_turn);
  void note(const UseAt& use);

  // Adds a free after the last use of every memory of the group that does not outlive the micro-batch. What weight
  // gradients read is freed in their part of backward, so that a schedule that splits backward frees it as well. A free
  // waits for the last use on every stream, and nothing waits for it.
  void add_frees();

 private:
  struct LastUse {
    BufferId of;
    TurnId turn = {};
    InstructionId anchor = {};
    InTurn in_turn = InTurn::Before;
    bool ahead = false;
    Phase phase = Phase::Forward;
    Guard guard = Guard::Always;  // of the first use in the phase: what is made once is freed once
    bool weight_part = false;     // of any use in the phase
    LastOnStreams by_stream = {};
  };
  LastUse& last_use(BufferId buffer);

  Program& program_;
  const CurrentGroup& group_;
  const Position& position_;
  Numbering& numbering_;
  Passages& passages_;
  std::vector<LastUse> last_uses_;
  IdVec<BufferId, std::uint32_t> last_use_at_;  // in last_uses_, if it is of that buffer there
  IdVec<BufferId, std::uint32_t> free_before_;  // in the frees before the change, + 1; 0: none
};

}  // namespace weft
