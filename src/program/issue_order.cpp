#include "program/issue_order.h"

#include <algorithm>
#include <array>

namespace weft {

std::string name_of_play(const Schedule& schedule, std::int32_t rank, const IssuedBody& issued) {
  if (issued.action < 0) return issued.action == IssuedBody::kStep ? "step" : "receive";
  return name_of(schedule.actions[static_cast<std::size_t>(rank)][static_cast<std::size_t>(issued.action)]);
}

IdVec<MeshId, std::int32_t> ranks_of_meshes(const Program& program, const Schedule& schedule) {
  IdVec<MeshId, std::int32_t> ranks(program.meshes.size(), -1);
  for (std::int32_t rank = 0; rank < schedule.ranks; ++rank)
    for (std::int32_t chunk = 0; chunk < schedule.chunks; ++chunk) {
      const std::size_t stage = program_stage(program, schedule, {rank, chunk});
      for (std::size_t body : {2 * stage, 2 * stage + 1})
        for (InstructionId id : body_at(program, body))
          if (const Instruction& each = program.instructions[id]; !std::holds_alternative<Receive>(each.what))
            ranks[each.mesh] = rank;
    }
  return ranks;
}

std::vector<std::vector<IssuedBody>> issue_order(const Program& program, const Schedule& schedule, Foreign foreign) {
  const auto ranks = static_cast<std::size_t>(schedule.ranks);
  const IdVec<MeshId, std::int32_t> rank_of = ranks_of_meshes(program, schedule);
  // By body, then [1] for its weight part and [0] for the rest: ranks that receive something there.
  std::vector<std::array<std::vector<std::int32_t>, 2>> receivers(body_count(program));
  for (std::size_t body = 0; body < receivers.size(); ++body)
    for (InstructionId id : body_at(program, body)) {
      const Instruction& each = program.instructions[id];
      if (!std::holds_alternative<Receive>(each.what) || rank_of[each.mesh] < 0) continue;
      std::vector<std::int32_t>& known = receivers[body][each.weight_part ? 1 : 0];
      if (std::find(known.begin(), known.end(), rank_of[each.mesh]) == known.end()) known.push_back(rank_of[each.mesh]);
    }

  std::vector<std::size_t> stage_at;  // by rank and chunk
  for (std::int32_t rank = 0; rank < schedule.ranks; ++rank)
    for (std::int32_t chunk = 0; chunk < schedule.chunks; ++chunk)
      stage_at.push_back(program_stage(program, schedule, {rank, chunk}));

  const std::vector<Visits> visits = visits_by_place(schedule);
  std::vector<std::vector<IssuedBody>> issued(ranks);
  std::vector<std::int32_t> others;
  for (const RankedAction& at : total_order(schedule)) {
    const auto rank = static_cast<std::size_t>(at.rank);
    const Action& action = schedule.actions[rank][static_cast<std::size_t>(at.action)];
    const std::size_t place = rank * static_cast<std::size_t>(schedule.chunks) + static_cast<std::size_t>(action.chunk);
    IssuedBody play{2 * stage_at[place] + (action.body == Body::Forward ? 0 : 1), action.body, action.micro_batch,
                    at.action, visits[place]};
    issued[rank].push_back(play);
    play.action = IssuedBody::kForeign;
    others.clear();
    if (foreign == Foreign::All) {
      for (std::int32_t other = 0; other < schedule.ranks; ++other) others.push_back(other);
    } else {
      for (bool weight_part : {false, true})
        if (const auto& list = receivers[play.body][weight_part ? 1 : 0]; in_part(play.part, weight_part))
          others.insert(others.end(), list.begin(), list.end());
      std::sort(others.begin(), others.end());
      others.erase(std::unique(others.begin(), others.end()), others.end());
    }
    for (std::int32_t other : others)
      if (other != at.rank) issued[static_cast<std::size_t>(other)].push_back(play);
  }
  for (std::vector<IssuedBody>& list : issued)
    list.push_back({body_count(program) - 1,
                    Body::Forward,
                    schedule.micro_batches - 1,
                    IssuedBody::kStep,
                    {-1, schedule.micro_batches - 1}});
  return issued;
}

}  // namespace weft
