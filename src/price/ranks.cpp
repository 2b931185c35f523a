#include "price/ranks.h"

#include <map>

namespace weft {

Ranks::Ranks(const Program& program, const Schedule& schedule, Foreign foreign)
    : program_(program),
      of_mesh_(ranks_of_meshes(program, schedule)),
      issued_(issue_order(program, schedule, foreign)) {
  for (const std::vector<IssuedBody>& issued : issued_) {
    RankPlays& plays = plays_.emplace_back();
    std::map<std::pair<std::size_t, Body>, BodyId> known;
    for (const IssuedBody& each : issued) {
      const auto [found, added] = known.try_emplace({each.body, each.part}, BodyId(plays.bodies.size()));
      if (added) plays.bodies.push_back({each.body, each.part});
      plays.plays.push_back({found->second, each.micro_batch});
    }
  }
}

int Ranks::of(DeviceId device) const {
  for (MeshId mesh : of_mesh_.ids())
    if (of_mesh_[mesh] >= 0 && program_.meshes[mesh].position_of(device) >= 0) return of_mesh_[mesh];
  return 0;
}

}  // namespace weft
