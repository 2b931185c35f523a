#include "strategy/placing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace weft {
namespace {

class Placer {
 public:
  Placer(const ResolvedStrategy& strategy, const Graph& graph) : strategy_(strategy), graph_(graph) {}

  Result<PlacedStrategy> run() {
    WEFT_CHECK(!strategy_.choices.empty());
    WEFT_TRY_OK(name_axes());
    WEFT_TRY_OK(place_stages());
    for (std::size_t route = 0; route < strategy_.routes.size(); ++route) placed_.routes.push_back(placed_route(route));
    WEFT_TRY_OK(place_operators());
    for (std::size_t route = 0; route < strategy_.routes.size(); ++route) choose(route);
    choose_storage();
    placed_.placing.mesh_of = placed_.routes.front().mesh_of;
    return std::move(placed_);
  }

 private:
  Status name_axes() {
    for (const MeshAxis& axis : strategy_.choices.front().axes) names_.push_back(axis.name);
    first_placed_ = names_.size();
    std::size_t most = 0;
    for (const Mesh& mesh : strategy_.placements) most = std::max(most, mesh.axes().size());
    for (std::size_t i = 0; i < most; ++i) names_.push_back(fmt::format("place{}", i));
    if (names_.size() > static_cast<std::size_t>(kMaxMeshAxes))
      return error("the meshes have {} different axes together ({}): at most {}", names_.size(),
                   fmt::join(names_, ", "), kMaxMeshAxes);
    return Ok{};
  }
  int index_of(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found == names_.end() ? -1 : static_cast<int>(found - names_.begin());
  }

  // The devices of a mesh in the grid of all axes; `axis_of` maps each of its own axes to one of those.
  Result<Mesh> widened(const Mesh& mesh, const std::vector<std::size_t>& axis_of) const {
    std::vector<MeshAxis> axes;
    for (const std::string& name : names_) axes.push_back({name, 1});
    for (std::size_t i = 0; i < axis_of.size(); ++i) axes[axis_of[i]].size = mesh.axes()[i].size;
    std::vector<DeviceId> devices(mesh.devices().size());
    for (int position = 0; position < mesh.size(); ++position) {
      std::vector<int> at(axes.size(), 0);
      for (std::size_t i = 0; i < axis_of.size(); ++i) at[axis_of[i]] = mesh.coordinate(position, static_cast<int>(i));
      std::size_t there = 0;
      for (std::size_t axis = 0; axis < axes.size(); ++axis)
        there = there * static_cast<std::size_t>(axes[axis].size) + static_cast<std::size_t>(at[axis]);
      devices[there] = mesh.devices()[static_cast<std::size_t>(position)];
    }
    return Mesh::make(std::move(axes), std::move(devices));
  }

  Status add(const Mesh& mesh, const std::vector<std::size_t>& axis_of, int stage) {
    WEFT_TRY(Mesh wide, widened(mesh, axis_of));
    placed_.placing.meshes.push_back(std::move(wide));
    placed_.placing.stage_of.push_back(stage);
    return Ok{};
  }

  Status place_stages() {
    for (std::size_t stage = 0; stage < strategy_.meshes.size(); ++stage) {
      const auto& [mesh, choices] = strategy_.meshes[stage];
      std::vector<std::size_t> axis_of;
      for (const MeshAxis& axis : mesh.axes()) axis_of.push_back(static_cast<std::size_t>(index_of(axis.name)));
      WEFT_TRY_OK(add(mesh, axis_of, static_cast<int>(stage)));
      choices_of_stage_.push_back(&strategy_.choices[choices]);
    }
    if (strategy_.routes.size() > 1)
      for (std::size_t route = 0; route < strategy_.routes.size(); ++route)
        for (std::int64_t stage = 0; stage < strategy_.routes[route].stages; ++stage)
          placed_.placing.route_of.push_back(static_cast<int>(route));
    return Ok{};
  }

  PlacedRoute placed_route(std::size_t route) const {
    PlacedRoute placed;
    placed.mesh_of.resize(graph_.ops().size(), MeshId(0));
    for (OpId op : graph_.ops().ids())
      if (graph_.ops()[op].phase == Phase::Forward) placed.mesh_of[op] = MeshId(stage_of(op, route));
    return placed;
  }
  // Of a forward operator, among those of all routes.
  std::size_t stage_of(OpId op, std::size_t route) const {
    return static_cast<std::size_t>(strategy_.routes[route].first + strategy_.routes[route].stage[op]);
  }

  Status place_operators() {
    std::map<std::pair<std::size_t, int>, MeshId> known;  // placement and stage
    for (const auto& [op, placement] : strategy_.placed) {
      const Mesh& mesh = strategy_.placements[placement];
      const auto stage = static_cast<int>(stage_of(op, 0));
      const auto [found, fresh] = known.try_emplace({placement, stage}, MeshId(placed_.placing.meshes.size()));
      if (fresh) {
        std::vector<std::size_t> axis_of;
        for (std::size_t i = 0; i < mesh.axes().size(); ++i) axis_of.push_back(first_placed_ + i);
        WEFT_TRY_OK(add(mesh, axis_of, stage));
      }
      placed_.routes.front().mesh_of[op] = found->second;
    }
    return Ok{};
  }

  void choose(std::size_t route) {
    ShardingChoices& to = placed_.routes[route].choices;
    to.ops.resize(names_.size());
    to.inputs.resize(names_.size());
    to.reduce_onto.resize(names_.size());
    to.ring = strategy_.ring;  // the axes of the strategy's mesh come first
    for (const MeshChoices& choices : strategy_.choices)
      for (std::size_t m = 0; m < choices.axes.size(); ++m) {
        // Rules name mesh axes, so the splits of inputs are the same on all meshes.
        to.inputs[m].insert(choices.sharding.inputs[m].begin(), choices.sharding.inputs[m].end());
        if (to.reduce_onto[m].empty()) to.reduce_onto[m] = choices.sharding.reduce_onto[m];
        for (const auto& [op, choice] : choices.sharding.ops[m])
          if (&choices == choices_of(op, route)) to.ops[m].emplace(op, choice);
      }
    for (const auto& [op, placement] : strategy_.placed) {
      const std::vector<MeshAxis>& degrees = strategy_.placements[placement].axes();
      for (std::size_t i = 0; first_placed_ + i < names_.size(); ++i)
        to.ops[first_placed_ + i][op] = {i < degrees.size() ? degrees[i].name : ""};
    }
  }

  void choose_storage() {
    for (const MeshChoices& choices : strategy_.choices)
      for (const auto& [id, own] : choices.parameters) {
        StorageChoice& into = placed_.parameters[id];
        for (std::size_t kind = 0; kind < kStoredKinds; ++kind) {
          into.over[kind] |= own.over[kind];
          into.offload[kind] = into.offload[kind] || own.offload[kind];
        }
        into.ratio.insert(own.ratio.begin(), own.ratio.end());
      }
    for (const MeshChoices& choices : strategy_.choices) {
      for (std::size_t kind = 0; kind < kStoredKinds; ++kind) {
        placed_.storage.over[kind] |= choices.storage.over[kind];
        placed_.storage.offload[kind] = placed_.storage.offload[kind] || choices.storage.offload[kind];
      }
      placed_.storage.ratio.insert(choices.storage.ratio.begin(), choices.storage.ratio.end());
    }
  }
  // The choices for the mesh of an operator, or of its forward operator.
  const MeshChoices* choices_of(OpId op, std::size_t route) const {
    const OpId forward = graph_.ops()[op].phase == Phase::Forward ? op : graph_.ops()[op].forward;
    return forward.valid() ? choices_of_stage_[stage_of(forward, route)] : &strategy_.choices.front();
  }

  const ResolvedStrategy& strategy_;
  const Graph& graph_;
  std::vector<std::string> names_;
  std::size_t first_placed_ = 0;  // the axis called place0
  std::vector<const MeshChoices*> choices_of_stage_;
  PlacedStrategy placed_;
};

}  // namespace

Result<PlacedStrategy> place(const ResolvedStrategy& strategy, const Graph& graph) {
  return Placer(strategy, graph).run();
}

}  // namespace weft
