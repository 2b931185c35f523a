// What each pipeline rank issues in a step, in order: the schedule's actions in one order for all.
//
// All ranks go through the actions in the same total order (schedule.h). A rank plays its own actions, and of those of
// others the receives that are on its meshes: both halves of a transfer stand in the body that sends, so they have one
// place in that order, and so have the members of a collective. Then every instruction, on whatever stream, waits only
// for earlier ones, and nothing can deadlock (docs/decisions/0003-one-order-for-transfers.md).
#pragma once

#include <vector>

#include "program/program.h"

namespace weft {

// A body that a rank plays for one micro-batch, or of another rank's body the receives that are the rank's.
struct IssuedBody {
  std::size_t body = 0;  // of the program
  Body part = Body::Forward;
  std::int32_t micro_batch = 0;
  std::int32_t action = kStep;  // index among the rank's own actions, or one of the two below
  Visits visits = {};           // of the place whose body it is

  static constexpr std::int32_t kStep = -1, kForeign = -2;  // the step; an action of another rank

  bool operator==(const IssuedBody&) const = default;
};

// Whether the rank, playing the body, plays an instruction of it that is on one of its meshes.
inline bool plays(const IssuedBody& issued, const Instruction& instruction) {
  return in_part(issued.part, instruction.weight_part) &&
         is_let_through(instruction.guard, issued.micro_batch, issued.visits);
}

// "F3.1", "step"; of another rank's action "receive".
std::string name_of_play(const Schedule& schedule, std::int32_t rank, const IssuedBody& issued);

// By mesh: the pipeline rank whose bodies have instructions on it other than receives; −1: none has.
IdVec<MeshId, std::int32_t> ranks_of_meshes(const Program& program, const Schedule& schedule);

// By rank, what it plays; the step is the last. Actions of other ranks are listed where the rank receives something from
// them, or all of them (for a program that will change). Cost: linear in instructions and actions.
enum class Foreign : std::uint8_t { Received, All };
std::vector<std::vector<IssuedBody>> issue_order(const Program& program, const Schedule& schedule,
                                                 Foreign foreign = Foreign::Received);

}  // namespace weft
