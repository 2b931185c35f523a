// What each pipeline rank plays: which bodies of the program its devices have, and in what order for which
// micro-batches.
#pragma once

#include "program/program.h"
#include "simulate/workload.h"

namespace weft {

// A body of an agent: of a body of the program, the part that the action plays.
struct RankBody {
  std::size_t source = 0;  // 2·stage, 2·stage + 1: backward, 2·stages: the step
  Body part = Body::Forward;

  // Is an instruction of the source in the body?
  bool takes(bool weight_part) const {
    return part == Body::BackwardInput ? !weight_part : part != Body::BackwardWeight || weight_part;
  }
};

struct RankPlays {
  IdVec<BodyId, RankBody> bodies;
  std::vector<Play> plays;
};

inline std::size_t body_count(const Program& program) { return 2 * program.stages.size() + 1; }
inline const std::vector<InstructionId>& body_at(const Program& program, std::size_t source) {
  if (source == 2 * program.stages.size()) return program.step;
  const StageProgram& stage = program.stages[source / 2];
  return source % 2 == 0 ? stage.forward : stage.backward;
}

class Ranks {
 public:
  // Cost: the instructions and the actions.
  Ranks(const Program& program, const Schedule& schedule);

  // The rank whose instructions the device executes; 0 if there are none.
  int of(DeviceId device) const;
  const RankPlays& plays(int rank) const { return plays_[static_cast<std::size_t>(rank)]; }

 private:
  const Program& program_;
  IdVec<MeshId, int> of_mesh_;
  std::vector<RankPlays> plays_;
};

}  // namespace weft
