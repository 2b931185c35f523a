// What each pipeline rank issues in a step, in order: the schedule's actions in one order for all.
//
// All ranks go through the actions in the same total order (schedule.h). A rank plays its own, and of another's what it
// receives from it: both halves of a transfer stand in the body that sends, so they are issued as one place of that
// order, and so are all who meet in a collective. Then every instruction, on whatever stream, waits only for earlier
// ones, and nothing can block (docs/decisions/0003-one-order-for-transfers.md).
#pragma once

#include <vector>

#include "program/program.h"

namespace weft {

// A play of a body, or of the rank's part in it.
struct IssuedBody {
  std::size_t body = 0;  // of the program
  Body part = Body::Forward;
  std::int32_t micro_batch = 0;
  std::int32_t action = kStep;  // of the rank's own, or one of these
  Visits visits = {};           // of the place whose body it is

  static constexpr std::int32_t kStep = -1, kForeign = -2;  // another rank's action

  bool operator==(const IssuedBody&) const = default;
};

// Whether the rank, playing the body, plays an instruction of it that is on one of its meshes.
inline bool plays(const IssuedBody& issued, const Instruction& instruction) {
  return in_part(issued.part, instruction.weight_part) &&
         is_let_through(instruction.guard, issued.micro_batch, issued.visits);
}

// "F3.1", "step"; of another rank's action "receive".
std::string name_of_play(const Schedule& schedule, std::int32_t rank, const IssuedBody& issued);

// The pipeline rank that each mesh is of: whose bodies have instructions of it, receives left out; −1: of none.
IdVec<MeshId, std::int32_t> ranks_of_meshes(const Program& program, const Schedule& schedule);

// By rank; the step is the last. Of other ranks' actions those from which the rank receives something, or all of them
// (for a program that will change). Cost: the instructions and the actions.
enum class Foreign : std::uint8_t { Received, All };
std::vector<std::vector<IssuedBody>> issue_order(const Program& program, const Schedule& schedule,
                                                 Foreign foreign = Foreign::Received);

}  // namespace weft
