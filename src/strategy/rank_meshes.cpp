#include "strategy/rank_meshes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/checked.h"
#include "strategy/schedules.h"

namespace weft {
namespace {

std::vector<std::string> names_of(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes) names.push_back(axis.name);
  return names;
}

// The axes that split operators on some mesh.
std::vector<std::string> all_operator_axes(const Strategy& strategy, const Report& report) {
  std::vector<std::string> names;
  const auto add = [&](const MeshDeclaration& mesh) {
    for (const MeshAxis& axis : operator_axes(mesh))
      if (std::find(names.begin(), names.end(), axis.name) == names.end()) names.push_back(axis.name);
  };
  add(strategy.mesh);
  for (const Stage& stage : strategy.schedule.stages)
    if (stage.mesh) add(*stage.mesh);
  const auto most = static_cast<std::size_t>(kMaxMeshAxes);
  if (names.size() <= most) return names;
  if (strategy.mesh.axes.size() <= most)  // else reported for the mesh itself
    report("mesh", strategy.schedule.line, "schedule",
           fmt::format("the meshes of the stages have {} different axes together: at most {}", names.size(), most));
  names.resize(most);
  return names;
}

// The pipeline ranks of a strategy and the stages of each; with an unknown schedule, one each.
struct StagesOfRanks {
  const PipelineSchedule* schedule;
  std::int64_t ranks, stages;

  explicit StagesOfRanks(const Strategy& strategy)
      : schedule(find_schedule(strategy.schedule.name)), ranks(strategy.mesh.size_of(kPipelineAxis)), stages(ranks) {
    if (schedule) stages = stage_count(*schedule, ranks, std::max<std::int64_t>(strategy.schedule.interleave, 1));
  }
  std::size_t rank_of(std::size_t stage) const {
    return schedule ? static_cast<std::size_t>(rank_of_stage(*schedule, ranks, static_cast<std::int64_t>(stage)))
                    : stage;
  }
};

// Reports ranks that share devices, and stages of one rank with different devices. (The first `ranks` stages belong to
// different ranks.)
void check_devices(const Strategy& strategy, const std::vector<Mesh>& meshes, const StagesOfRanks& of,
                   const Report& report) {
  const std::vector<Stage>& stages = strategy.schedule.stages;
  const auto contradiction = [&](std::size_t stage, const std::string& message) {
    const bool own = stage < stages.size() && stages[stage].mesh;
    report("contradiction", own ? stages[stage].mesh->line : strategy.schedule.line, "schedule", message);
  };
  std::map<DeviceId, std::size_t> rank_of;
  std::set<std::pair<std::size_t, std::size_t>> reported;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(of.ranks); ++rank)
    for (DeviceId device : meshes[rank].devices()) {
      const auto [known, fresh] = rank_of.try_emplace(device, rank);
      if (fresh || !reported.insert({known->second, rank}).second) continue;
      contradiction(rank, fmt::format("stages {} and {} both have device {}", known->second, rank, device.index()));
    }
  for (std::size_t stage = static_cast<std::size_t>(of.ranks); stage < meshes.size(); ++stage) {
    const std::size_t rank = of.rank_of(stage);
    const bool same = meshes[stage].size() == meshes[rank].size() &&
                      std::all_of(meshes[stage].devices().begin(), meshes[stage].devices().end(),
                                  [&](DeviceId device) { return meshes[rank].position_of(device) >= 0; });
    if (!same)
      contradiction(stage,
                    fmt::format("stage {} is played by pipeline rank {}, as stage {} is, and needs a mesh of the "
                                "same devices",
                                stage, rank, rank));
  }
  if (!of.schedule || !of.schedule->bidirectional) return;
  for (std::size_t stage = 1; stage < meshes.size(); ++stage)
    if (meshes[stage].axes() != meshes[0].axes())
      contradiction(stage,
                    fmt::format("schedule {} holds every stage twice, on the devices of two ranks, so all stages "
                                "need meshes of one shape; stage {} has another than stage 0",
                                of.schedule->name, stage));
}

}  // namespace

std::vector<std::string> mesh_violations(const MeshDeclaration& mesh, const Cluster& cluster) {
  std::vector<std::string> violations;
  std::vector<std::string> names = names_of(mesh.axes), order = mesh.order;
  std::vector<std::int64_t> sizes;
  std::set<std::string> seen;
  if (mesh.axes.size() > static_cast<std::size_t>(kMaxMeshAxes))
    violations.push_back(fmt::format("{} axes: at most {}", mesh.axes.size(), kMaxMeshAxes));
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.name.empty()) violations.emplace_back("an axis needs a name");
    if (axis.size < 1) violations.push_back(fmt::format("axis {}={}: a size of at least 1", axis.name, axis.size));
    if (!seen.insert(axis.name).second) violations.push_back(fmt::format("axis {} given twice", axis.name));
    sizes.push_back(axis.size);
  }
  std::sort(order.begin(), order.end());
  std::sort(names.begin(), names.end());
  if (!order.empty() && order != names)
    violations.push_back(fmt::format("order {}: name every axis of the mesh once: {}", fmt::join(mesh.order, ", "),
                                     fmt::join(names_of(mesh.axes), ", ")));
  if (!violations.empty()) return violations;

  const std::optional<std::int64_t> size = checked_product(sizes);
  const bool listed = !mesh.devices.empty();
  const std::int64_t available = listed ? static_cast<std::int64_t>(mesh.devices.size()) : cluster.device_count();
  if (!size || *size > available || (listed && *size != available))
    violations.push_back(fmt::format(
        "{} = {} needs {} devices, {} {}; change a size", fmt::join(names_of(mesh.axes), "·"), fmt::join(sizes, "·"),
        size ? fmt::format("{}", *size) : "too many", listed ? "listed are" : "the cluster has", available));
  std::set<std::int64_t> devices;
  for (std::int64_t device : mesh.devices) {
    if (device < 0 || device >= cluster.device_count())
      violations.push_back(fmt::format("device {}: the cluster has 0 to {}", device, cluster.device_count() - 1));
    else if (!devices.insert(device).second)
      violations.push_back(fmt::format("device {} given twice", device));
  }
  return violations;
}

std::vector<MeshAxis> operator_axes(const MeshDeclaration& mesh) {
  std::vector<MeshAxis> axes = mesh.axes;
  std::erase_if(axes, [](const MeshAxis& axis) { return axis.name == kPipelineAxis; });
  if (axes.empty()) axes.push_back({"dp", 1});
  return axes;
}

std::vector<Mesh> rank_meshes(const MeshDeclaration& mesh) {
  std::vector<std::string> order = mesh.order;
  if (order.empty())
    for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); ++axis) order.push_back(axis->name);
  // The stride of each axis in the rank number; an undeclared axis has one coordinate only.
  const auto stride_of = [&](std::string_view axis) {
    std::int64_t stride = 1;
    for (const std::string& name : order) {
      if (name == axis) return stride;
      stride *= mesh.size_of(name);
    }
    return std::int64_t{0};
  };
  const std::vector<MeshAxis> axes = operator_axes(mesh);
  std::int64_t size = 1;
  std::vector<std::int64_t> strides;
  for (const MeshAxis& axis : axes) {
    size *= axis.size;
    strides.push_back(stride_of(axis.name));
  }
  std::vector<Mesh> meshes;
  for (std::int64_t rank = 0; rank < mesh.size_of(kPipelineAxis); ++rank) {
    std::vector<DeviceId> devices;
    for (std::int64_t position = 0; position < size; ++position) {
      std::int64_t rest = position, at = rank * stride_of(kPipelineAxis);
      for (std::size_t axis = axes.size(); axis-- > 0;) {
        at += rest % axes[axis].size * strides[axis];
        rest /= axes[axis].size;
      }
      devices.emplace_back(
          static_cast<std::size_t>(mesh.devices.empty() ? at : mesh.devices[static_cast<std::size_t>(at)]));
    }
    meshes.push_back(Mesh::make(axes, std::move(devices)).value());
  }
  return meshes;
}

StrategyMeshes find_meshes(const Strategy& strategy, const Cluster& cluster, const Report& report) {
  const auto sound = [&](const MeshDeclaration& mesh) {
    const std::vector<std::string> violations = mesh_violations(mesh, cluster);
    for (const std::string& violation : violations) report("mesh", mesh.line, "mesh", violation);
    return violations.empty();
  };
  StrategyMeshes meshes;
  meshes.operator_axes = all_operator_axes(strategy, report);
  meshes.names = names_of(strategy.mesh.axes);
  const StagesOfRanks of(strategy);
  const bool whole = sound(strategy.mesh);
  std::vector<std::optional<Mesh>> own_meshes(whole ? static_cast<std::size_t>(of.stages) : 0);
  for (std::size_t stage = 0; stage < strategy.schedule.stages.size(); ++stage) {
    const auto& own = strategy.schedule.stages[stage].mesh;
    if (!own) continue;
    for (const MeshAxis& axis : own->axes) meshes.names.push_back(axis.name);
    const auto contradiction = [&](std::string_view message) {
      report("contradiction", own->line, "schedule", fmt::format("stage {}: {}", stage, message));
    };
    if (own->size_of(kPipelineAxis) > 1)
      contradiction("its mesh cannot have stages");
    else if (own->devices.empty())
      contradiction("a mesh of its own needs its devices");
    else if (sound(*own) && stage < own_meshes.size())
      own_meshes[stage] = rank_meshes(*own).front();
  }
  if (whole) {
    const std::vector<Mesh> ranks = rank_meshes(strategy.mesh);
    std::vector<const Mesh*> of_rank;  // the mesh of stages without one of their own
    for (const Mesh& mesh : ranks) of_rank.push_back(&mesh);
    for (std::size_t stage = own_meshes.size(); stage-- > 0;)
      if (own_meshes[stage]) of_rank[of.rank_of(stage)] = &*own_meshes[stage];
    for (std::size_t stage = 0; stage < own_meshes.size(); ++stage)
      meshes.stages.push_back(own_meshes[stage] ? *own_meshes[stage] : *of_rank[of.rank_of(stage)]);
    if (std::any_of(own_meshes.begin(), own_meshes.end(), [](const auto& own) { return own.has_value(); }))
      check_devices(strategy, meshes.stages, of, report);
  }
  std::sort(meshes.names.begin(), meshes.names.end());
  meshes.names.erase(std::unique(meshes.names.begin(), meshes.names.end()), meshes.names.end());
  return meshes;
}

}  // namespace weft
