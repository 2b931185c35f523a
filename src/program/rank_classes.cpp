#include "program/rank_classes.h"

#include <algorithm>

namespace weft {
namespace {

// By mesh: the stages in whose bodies it has instructions other than receives; −1 for the step.
IdVec<MeshId, std::vector<std::int32_t>> stages_of_meshes(const Program& program) {
  IdVec<MeshId, std::vector<std::int32_t>> stages(program.meshes.size());
  const auto add = [&](const std::vector<InstructionId>& body, std::int32_t stage) {
    for (InstructionId id : body) {
      if (stage >= 0 && std::holds_alternative<Receive>(program.instructions[id].what)) continue;
      std::vector<std::int32_t>& known = stages[program.instructions[id].mesh];
      if (known.empty() || known.back() != stage) known.push_back(stage);
    }
  };
  for (std::size_t stage = 0; stage < program.stages.size(); ++stage) {
    add(program.stages[stage].forward, static_cast<std::int32_t>(stage));
    add(program.stages[stage].backward, static_cast<std::int32_t>(stage));
  }
  add(program.step, -1);
  return stages;
}

// Sets of devices that belong to the same of these meshes, by partition refinement: each mesh splits the classes that it
// has some members of.
std::vector<RankClass> by_membership(const Program& program,
                                     const IdVec<MeshId, std::vector<std::int32_t>>& stages_of) {
  std::vector<DeviceId> all;
  for (MeshId mesh : program.meshes.ids())
    if (!stages_of[mesh].empty())
      all.insert(all.end(), program.meshes[mesh].devices().begin(), program.meshes[mesh].devices().end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());

  std::vector<std::uint32_t> class_of(all.size(), 0);
  std::vector<std::vector<MeshId>> meshes(1);  // by class
  std::vector<std::uint32_t> moved;            // by class: where its members in this mesh go
  for (MeshId mesh : program.meshes.ids()) {
    if (stages_of[mesh].empty()) continue;
    moved.assign(meshes.size(), 0);
    for (DeviceId device : program.meshes[mesh].devices()) {
      std::uint32_t& at =
          class_of[static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), device) - all.begin())];
      if (moved[at] == 0) {
        moved[at] = static_cast<std::uint32_t>(meshes.size());
        meshes.push_back(meshes[at]);
        meshes.back().push_back(mesh);
      }
      at = moved[at];
    }
  }
  std::vector<RankClass> classes;
  std::vector<std::uint32_t> place(meshes.size(), 0);  // + 1
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (place[class_of[i]] == 0) {
      classes.push_back({{}, -1, {}, meshes[class_of[i]]});
      place[class_of[i]] = static_cast<std::uint32_t>(classes.size());
    }
    classes[place[class_of[i]] - 1].devices.push_back(all[i]);
  }
  return classes;
}

}  // namespace

Result<std::vector<RankClass>> rank_classes(const Program& program, const Schedule& schedule) {
  std::size_t stages = 0;
  for (const std::vector<Place>& route : schedule.routes) stages += route.size();
  if (stages != program.stages.size())
    return error("the schedule has {} stages, the program {}", stages, program.stages.size());
  const IdVec<MeshId, std::vector<std::int32_t>> stages_of = stages_of_meshes(program);
  std::vector<RankClass> classes = by_membership(program, stages_of);
  // The rank of every stage, those of each route after those of the one before.
  std::vector<std::int32_t> rank_of;
  for (const std::vector<Place>& route : schedule.routes)
    for (const Place& place : route) rank_of.push_back(place.rank);

  for (RankClass& each : classes) {
    for (MeshId mesh : each.meshes)
      for (std::int32_t stage : stages_of[mesh]) {
        if (stage < 0) continue;
        const std::int32_t rank = rank_of[static_cast<std::size_t>(stage)];
        if (each.rank < 0) each.rank = rank;
        if (each.rank != rank)
          return error(
              "device {} plays for pipeline ranks {} and {} (mesh m{} has instructions in stage {}): give every mesh "
              "the devices of one rank",
              each.devices.front().index(), each.rank, rank, mesh.index(), stage);
        each.stages.push_back(stage);
      }
    std::sort(each.stages.begin(), each.stages.end());
    each.stages.erase(std::unique(each.stages.begin(), each.stages.end()), each.stages.end());
  }
  return classes;
}

}  // namespace weft
