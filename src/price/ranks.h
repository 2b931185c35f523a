// The schedule of each pipeline rank: the bodies of the program that its devices run, in which order and for which
// micro-batches.
#pragma once

#include "program/issue_order.h"
#include "simulate/workload.h"

namespace weft {

// A body of an agent: the part of a body of the program that an action runs.
struct RankBody {
  std::size_t source = 0;
  Body part = Body::Forward;

  // Whether an instruction of the source body belongs to this part.
  bool takes(bool weight_part) const { return in_part(part, weight_part); }
};

struct RankPlays {
  IdVec<BodyId, RankBody> bodies;
  std::vector<Play> plays;
};

class Ranks {
 public:
  // Cost: linear in instructions and actions.
  Ranks(const Program& program, const Schedule& schedule, Foreign foreign = Foreign::Received);

  // The rank whose instructions the device executes; 0 if there are none.
  int of(DeviceId device) const;
  const RankPlays& plays(int rank) const { return plays_[static_cast<std::size_t>(rank)]; }
  // The body and micro-batch of each play, by rank.
  const std::vector<std::vector<IssuedBody>>& issued() const { return issued_; }

 private:
  const Program& program_;
  const IdVec<MeshId, std::int32_t> of_mesh_;
  const std::vector<std::vector<IssuedBody>> issued_;
  std::vector<RankPlays> plays_;
};

}  // namespace weft
