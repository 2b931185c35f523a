// The difference that a change makes to a program: given by the compiler (compile/compilation.h), applied by pricing
// (price/incremental.h).
#pragma once

#include <vector>

#include "program/program.h"

namespace weft {

// What changed in one body: at `position`, `removed` was replaced by `added`. Positions are those of the body after all
// edits before it in the list have been made; within a body they ascend.
struct BodyEdit {
  int stage = 0;  // −1: the step
  bool backward = false;
  std::size_t position = 0;
  std::vector<InstructionId> removed, added;
};

struct ProgramEdit {
  // An instruction that is added and nowhere removed is new; one that is both stays, or moves. One that moves to other
  // devices is listed even if its place in the body is the same.
  std::vector<BodyEdit> bodies;
  // Instructions that stayed, with new contents.
  std::vector<InstructionId> rewritten;
};

// Whether both do the same on the same devices, if perhaps on other buffers.
bool alike(const Program& program, const Instruction& a, const Instruction& b);

}  // namespace weft
