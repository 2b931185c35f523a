#include "price/ranks.h"

#include <map>

namespace weft {

Ranks::Ranks(const Program& program, const Schedule& schedule)
    : program_(program), of_mesh_(program.meshes.size(), -1) {
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    const auto source = [&](std::int32_t chunk, bool backward) {
      return 2 * program_stage(program, schedule, {static_cast<std::int32_t>(rank), chunk}) + (backward ? 1 : 0);
    };
    for (std::int32_t chunk = 0; chunk < schedule.chunks; ++chunk)
      for (bool backward : {false, true})
        for (InstructionId id : body_at(program, source(chunk, backward)))
          of_mesh_[program.instructions[id].mesh] = static_cast<int>(rank);

    RankPlays& plays = plays_.emplace_back();
    std::map<std::pair<std::int32_t, Body>, BodyId> known;
    for (const Action& action : schedule.actions[rank]) {
      const auto [found, added] = known.try_emplace({action.chunk, action.body}, BodyId(plays.bodies.size()));
      if (added) plays.bodies.push_back({source(action.chunk, action.body != Body::Forward), action.body});
      plays.plays.push_back({found->second, action.micro_batch});
    }
    const BodyId step = plays.bodies.push_back({body_count(program) - 1, Body::Forward});
    plays.plays.push_back({step, schedule.micro_batches - 1});
  }
}

int Ranks::of(DeviceId device) const {
  for (MeshId mesh : of_mesh_.ids())
    if (of_mesh_[mesh] >= 0 && program_.meshes[mesh].position_of(device) >= 0) return of_mesh_[mesh];
  return 0;
}

}  // namespace weft
