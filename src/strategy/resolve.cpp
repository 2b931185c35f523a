#include "strategy/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>

#include "base/suggest.h"
#include "strategy/rank_meshes.h"
#include "strategy/schedules.h"
#include "strategy/split_choices.h"
#include "strategy/stages.h"
#include "strategy/structure.h"

namespace weft {
namespace {

class Resolver {
 public:
  Resolver(const Strategy& strategy, const TrainingGraph& training, const Cluster& cluster, std::string_view file)
      : strategy_(strategy),
        graph_(training.graph),
        cluster_(cluster),
        violations_(strategy, file),
        inheritance_(strategy) {}

  ResolvedStrategy run() {
    layers_ = find_layers(graph_);
    structure_ = find_tensor_parallel(graph_, layers_);
    name_ops();
    resolve_schedule();
    resolve_meshes();
    check_rules();
    assign_routes();
    for (OpId op : graph_.ops().ids()) {
      const Op& described = graph_.ops()[op];
      const bool wanted = described.phase == Phase::Forward || (described.phase == Phase::Backward && backward_rules_);
      configs_.push_back(wanted ? &held_configs_.emplace_back(inheritance_.of(names_[op])) : &no_config_);
    }
    SplitChooser chooser({strategy_, graph_, structure_, inheritance_, names_, configs_, mesh_names_}, violations_);
    for (MeshChoices& choices : resolved_.choices) {
      choices.sharding = chooser.choose(operators_on(choices));
      choose_storage(choices);
    }
    chooser.check_axes();
    for (const MeshChoices& choices : resolved_.choices) {
      chooser.check_heads(operators_on(choices), choices.sharding);
      check_routing(choices);
    }
    place_ops();
    for (std::size_t route = 0; route < resolved_.routes.size(); ++route)
      resolved_.routes[route].recompute = recompute_on(static_cast<std::int64_t>(route));
    for (OpId op : graph_.ops().ids())
      if (const auto& offload = configs_[op]->offload[static_cast<std::size_t>(Stored::Activations)];
          offload && offload->value && graph_.ops()[op].phase == Phase::Forward)
        resolved_.saved_on_host.push_back(op);
    resolve_ring();
    return std::move(resolved_);
  }

  std::vector<Violation> take_violations() { return violations_.take(); }

 private:
  void name_ops() {
    IdVec<ModuleId, std::string> paths;
    for (ModuleId module : graph_.modules().ids()) {
      std::string path = graph_.name(module);
      if (!path.empty()) path += '.';
      paths.push_back(std::move(path));
    }
    names_.reserve(graph_.ops().size());
    for (const Op& op : graph_.ops()) {
      std::string name;
      name.reserve(paths[op.module].size() + op.name.size());
      name += paths[op.module];
      name += op.name;
      names_.push_back(std::move(name));
    }
  }

  void resolve_schedule() {
    const ScheduleConfig& given = strategy_.schedule;
    const std::int64_t ranks = std::max<std::int64_t>(strategy_.mesh.size_of(kPipelineAxis), 1);
    resolved_.schedule = {given.name, ranks, given.interleave, given.micro_batches};
    const PipelineSchedule* schedule = find_schedule(given.name);
    if (!schedule) {
      violations_.add(
          "schedule", given.line, "schedule",
          fmt::format("schedule '{}' unknown{}", given.name, did_you_mean(given.name, pipeline_schedule_names())));
      resolved_.stages = ranks;
      return;
    }
    for (std::string& need : schedule_violations(*schedule, ranks, given.interleave, given.micro_batches))
      violations_.add("schedule", given.line, "schedule", std::move(need));
    const std::int64_t interleave = std::max<std::int64_t>(given.interleave, 1);
    resolved_.schedule.chunks = chunk_count(*schedule, interleave);
    resolved_.stages = stage_count(*schedule, ranks, interleave);
    if (!given.routes.empty() && resolved_.schedule.chunks > 1)
      violations_.add("schedule", given.line, "schedule",
                      fmt::format("schedule {} holds several model chunks on a rank; routes take 1f1b, gpipe, zb-h1 or "
                                  "zb-h2",
                                  given.name));
    else if (!given.stages.empty() && static_cast<std::int64_t>(given.stages.size()) != resolved_.stages)
      violations_.add("stages", given.stages.front().line, "schedule",
                      fmt::format("{} stages are listed, but pp={} with schedule {} has {}", given.stages.size(), ranks,
                                  given.name, resolved_.stages));
  }

  // The stages of each route by itself.
  void assign_routes() {
    const ScheduleConfig& given = strategy_.schedule;
    if (given.routes.empty()) {
      resolved_.routes.push_back({0,
                                  resolved_.stages,
                                  given.micro_batches,
                                  assign_stages(given, resolved_.stages, graph_, layers_, violations_.reporter()),
                                  {}});
      return;
    }
    std::size_t first = 0;
    for (std::size_t route = 0; route < given.routes.size(); ++route) {
      ScheduleConfig own = given;
      const auto begin = given.stages.begin() + static_cast<std::ptrdiff_t>(std::min(first, given.stages.size()));
      const auto left = static_cast<std::int64_t>(given.stages.end() - begin);
      own.stages.assign(begin, begin + std::min(given.routes[route].stages, left));
      const Report report = [&](std::string_view name, Line line, std::string_view part, std::string message) {
        violations_.reporter()(name, line, part, fmt::format("route {}: {}", route, message));
      };
      if (const PipelineSchedule* const schedule = find_schedule(given.name); schedule && schedule->chunks == 1)
        for (std::string& need :
             schedule_violations(*schedule, given.routes[route].stages, 1, given.routes[route].micro_batches))
          report("schedule", given.routes[route].line, "schedule", std::move(need));
      resolved_.routes.push_back({static_cast<std::int64_t>(first),
                                  given.routes[route].stages,
                                  given.routes[route].micro_batches,
                                  assign_stages(own, given.routes[route].stages, graph_, layers_, report),
                                  {}});
      first += static_cast<std::size_t>(given.routes[route].stages);
    }
    for (std::size_t stage = 0; stage < given.stages.size(); ++stage)
      if (!given.stages[stage].mesh)
        violations_.add(
            "contradiction", given.stages[stage].line, "schedule",
            fmt::format("stage {}: every stage of a route needs a mesh of its own, with its devices", stage));
    for (std::size_t i = 0; i < strategy_.rules.size(); ++i)
      if (strategy_.rules[i].place)
        violations_.add("contradiction", i, "place: an operator runs on every route, so it has no devices of its own");
  }

  RecomputeRegions recompute_on(std::int64_t route) {
    IdVec<OpId, std::optional<Inherited<Recompute>>> modes;
    const bool own = std::any_of(strategy_.rules.begin(), strategy_.rules.end(),
                                 [&](const Rule& rule) { return rule.route == route; });
    const Inheritance inheritance(strategy_, route);
    for (OpId op : graph_.ops().ids())
      modes.push_back(own && graph_.ops()[op].phase == Phase::Forward ? inheritance.of(names_[op]).recompute
                                                                      : configs_[op]->recompute);
    return assign_recompute(modes, graph_, layers_);
  }

  void resolve_meshes() {
    StrategyMeshes meshes = find_meshes(strategy_, cluster_, violations_.reporter());
    mesh_names_ = std::move(meshes.names);
    const auto sizes = [&](auto&& size_of) {
      std::vector<MeshAxis> axes;
      for (const std::string& name : meshes.operator_axes) axes.push_back({name, size_of(name)});
      return axes;
    };
    for (Mesh& mesh : meshes.stages) {
      const std::size_t choices = choices_for(sizes([&](const std::string& name) {
        const int axis = mesh.axis_named(name);
        return axis < 0 ? 1 : mesh.axes()[static_cast<std::size_t>(axis)].size;
      }));
      resolved_.meshes.push_back({std::move(mesh), choices});
    }
    // Without meshes there are violations already; the rest is still checked, with the sizes as declared.
    if (meshes.stages.empty())
      choices_for(sizes([&](const std::string& name) { return strategy_.mesh.size_of(name); }));
  }
  std::size_t choices_for(std::vector<MeshAxis> axes) {
    for (std::size_t i = 0; i < resolved_.choices.size(); ++i)
      if (resolved_.choices[i].axes == axes) return i;
    resolved_.choices.emplace_back().axes = std::move(axes);
    return resolved_.choices.size() - 1;
  }
  OperatorMesh operators_on(const MeshChoices& choices) const {
    return {choices.axes, [this, &choices](OpId op) { return runs_on(choices, op); }};
  }
  // Whether an operator runs on a mesh with these choices on some route; on all of them while the meshes are not known.
  bool runs_on(const MeshChoices& choices, OpId op) const {
    if (resolved_.meshes.empty() || resolved_.choices.size() == 1) return true;
    const OpId forward = graph_.ops()[op].phase == Phase::Forward ? op : graph_.ops()[op].forward;
    if (!forward.valid()) return true;
    return std::any_of(resolved_.routes.begin(), resolved_.routes.end(), [&](const RouteChoice& route) {
      const auto stage = static_cast<std::size_t>(route.first + route.stage[forward]);
      // (Where the stages are not as many as the mesh has ranks, there is a violation already.)
      return stage >= resolved_.meshes.size() || &choices == &resolved_.choices[resolved_.meshes[stage].choices];
    });
  }

  void check_mesh_axis(std::size_t rule, const std::string& axis) {
    if (axis == kPipelineAxis)
      violations_.add("contradiction", rule,
                      "pp cuts the model into stages, it splits no operator; write it in schedule");
    else if (!std::binary_search(mesh_names_.begin(), mesh_names_.end(), axis))
      violations_.add("unknown-axis", rule,
                      fmt::format("the mesh has no axis '{}', only {}{}", axis, fmt::join(mesh_names_, ", "),
                                  did_you_mean(axis, mesh_names_)));
  }

  // Globs that cover nothing, axes that the mesh lacks.
  void check_rules() {
    for (std::size_t i = 0; i < strategy_.rules.size(); ++i) {
      const Rule& rule = strategy_.rules[i];
      const bool backward = rule.match.find('@') != std::string::npos;
      backward_rules_ = backward_rules_ || backward;
      if (!covers_anything(Glob(rule.match)))
        violations_.add("unknown-module", i,
                        fmt::format("'{}' covers no module, operator or tensor{}", rule.match,
                                    did_you_mean(rule.match, known_nodes())));
      for (const auto& [axis, split] : rule.compute) check_mesh_axis(i, axis);
      for (const auto& [axis, split] : rule.inputs) check_mesh_axis(i, axis);
      for (const Storage& storage : rule.memory) {
        for (const std::string& axis : storage.over.value_or(std::vector<std::string>{})) check_mesh_axis(i, axis);
        for (const auto& [axis, ratio] : storage.ratio) check_mesh_axis(i, axis);
      }
      if (const Storage& saved = rule.stored(Stored::Activations); saved.over || !saved.ratio.empty())
        violations_.add("contradiction", i,
                        "memory: activations are saved as their operators split them; split those otherwise "
                        "(sequence_parallel, inputs), recompute, or offload");
      if (rule.place && !rule.compute.empty())
        violations_.add("contradiction", i, "an operator is split over mesh axes or placed on devices, not both");
      if (rule.route) check_route_of(i);
      if (backward && (rule.recompute || rule.place))
        violations_.add("contradiction", i, "recompute and place belong to forward operators; name them without '@'");
    }
    for (const Stage& stage : strategy_.schedule.stages)
      for (const std::string& pattern : stage.modules)
        if (!covers_anything(Glob(pattern)))
          violations_.add(
              "unknown-module", stage.line, "schedule",
              fmt::format("stage module '{}' covers nothing{}", pattern, did_you_mean(pattern, known_nodes())));
  }
  void check_route_of(std::size_t i) {
    const Rule& rule = strategy_.rules[i];
    const auto routes = static_cast<std::int64_t>(strategy_.schedule.routes.size());
    if (*rule.route >= routes)
      violations_.add("contradiction", i,
                      routes == 0 ? fmt::format("route {}: the schedule has no routes", *rule.route)
                                  : fmt::format("route {}: the schedule has 0 to {}", *rule.route, routes - 1));
    if (!rule.compute.empty() || !rule.inputs.empty() || rule.memory != Rule{}.memory || rule.place)
      violations_.add("contradiction", i,
                      "a rule for one route says recompute alone; meshes and stages are said by the route itself");
  }
  bool covers_anything(const Glob& glob) const {
    if (std::any_of(names_.begin(), names_.end(), [&](const std::string& name) { return glob.covers(name); }))
      return true;
    for (TensorId id : graph_.tensors().ids()) {
      const TensorKind kind = graph_.tensors()[id].kind;
      if ((kind == TensorKind::Input || kind == TensorKind::Parameter) && glob.covers(graph_.name(id))) return true;
    }
    return false;
  }
  // Every module and operator once, layers folded: what a misspelt glob may have meant.
  const std::vector<std::string>& known_nodes() {
    if (!known_nodes_.empty()) return known_nodes_;
    std::set<std::string> known;
    for (OpId op : graph_.ops().ids()) {
      if (graph_.ops()[op].phase != Phase::Forward) break;
      std::string glob = layer_glob(names_[op]);
      for (;;) {
        known.insert(glob);
        const std::size_t dot = glob.rfind('.');
        if (dot == std::string::npos) break;
        glob.resize(dot);
      }
    }
    known_nodes_.assign(known.begin(), known.end());
    return known_nodes_;
  }

  MeshAxes bits(const MeshChoices& choices, const std::vector<std::string>& names) const {
    MeshAxes axes = 0;
    for (std::size_t m = 0; m < choices.axes.size(); ++m)
      if (choices.axes[m].size > 1 && std::find(names.begin(), names.end(), choices.axes[m].name) != names.end())
        axes |= MeshAxes{1} << m;
    return axes;
  }
  StorageChoice storage_of(const MeshChoices& choices, const NodeConfig& config) {
    StorageChoice storage;
    std::optional<std::size_t> rule;
    for (std::size_t kind = 0; kind < kStoredKinds; ++kind) {
      if (config.over[kind]) {
        storage.over[kind] = bits(choices, config.over[kind]->value);
        rule = config.over[kind]->rule;
      }
      if (config.offload[kind]) storage.offload[kind] = config.offload[kind]->value;
      for (const auto& [axis, ratio] : config.ratio[kind])
        add_ratio(choices, axis, ratio, static_cast<Stored>(kind), storage);
    }
    const auto within = [](MeshAxes inner, MeshAxes outer) { return (inner & ~outer) == 0; };
    if (!within(storage.axes_of(Stored::Weights), storage.axes_of(Stored::Optimizer)) ||
        !within(storage.axes_of(Stored::Gradients), storage.axes_of(Stored::Optimizer)) ||
        !within(storage.axes_of(Stored::Weights), storage.axes_of(Stored::Gradients)))
      violations_.add_once(
          "contradiction", *rule,
          "memory: weights are spread over no more axes than gradients, gradients no more than optimizer state");
    return storage;
  }
  void add_ratio(const MeshChoices& choices, const std::string& name, const Inherited<std::vector<std::int64_t>>& ratio,
                 Stored kind, StorageChoice& into) {
    const auto wrong = [&](const std::string& message) {
      violations_.add_once("contradiction", ratio.rule, fmt::format("memory: {}: {}", name_of(kind), message));
    };
    for (std::size_t m = 0; m < choices.axes.size(); ++m) {
      const MeshAxis& axis = choices.axes[m];
      if (axis.name != name || axis.size == 1) continue;
      if ((into.axes_of(kind) >> m & 1u) == 0)
        return wrong(fmt::format("a ratio for {}, which over does not name; add it there", name));
      if (static_cast<int>(ratio.value.size()) != axis.size)
        return wrong(fmt::format("ratio {} has {} shares, but {}={}", fmt::join(ratio.value, ":"), ratio.value.size(),
                                 name, axis.size));
      if (std::any_of(ratio.value.begin(), ratio.value.end(), [](std::int64_t share) { return share < 1; }))
        return wrong("the shares of a ratio are at least 1");
      const auto [known, fresh] = into.ratio.try_emplace(static_cast<int>(m), reduced(ratio.value));
      if (!fresh && known->second != reduced(ratio.value))
        return wrong(fmt::format("{} in the ratio {}, other kinds in another; write one for all", name,
                                 fmt::join(ratio.value, ":")));
    }
  }
  void choose_storage(MeshChoices& choices) {
    choices.storage = storage_of(choices, inheritance_.of(""));
    const bool varied = std::any_of(strategy_.rules.begin(), strategy_.rules.end(), [](const Rule& rule) {
      return rule.match != "**" && rule.memory != Rule{}.memory;
    });
    if (!varied) return;
    for (TensorId id : graph_.tensors().ids()) {
      if (graph_.tensors()[id].kind != TensorKind::Parameter) continue;
      StorageChoice own = storage_of(choices, inheritance_.of(graph_.name(id)));
      if (own != choices.storage) choices.parameters.emplace(id, own);
    }
  }

  // Each device routes its own tokens: if a part of the sequence is not a routing group, tokens would be gathered
  // first, and every device of the group would repeat the experts' work.
  void check_routing(const MeshChoices& choices) {
    for (OpId op : graph_.ops().ids()) {
      if (graph_.ops()[op].phase != Phase::Forward) return;
      if (graph_.kind(op) != OpKind::Dispatch || !runs_on(choices, op)) continue;
      std::int64_t groups = 1, context = 1, sums = 1;
      for (std::int64_t factor : graph_.signature(op).attrs.integers("groups", {1})) groups *= factor;
      for (std::size_t m = 0; m < choices.axes.size(); ++m) {
        const auto& inputs = choices.sharding.inputs[m];
        const auto cut =
            std::find_if(inputs.begin(), inputs.end(), [](const auto& input) { return input.second.dim == 1; });
        if (cut != inputs.end())
          context *= choices.axes[m].size == 1 ? 1 : units_of(cut->second.shares, choices.axes[m].size);
        else if (choices.sharding.reduce_onto[m] == "s")
          sums *= choices.axes[m].size;
      }
      const std::int64_t tokens = graph_.tensors()[graph_.inputs(op)[0]].type.shape[1];
      const std::int64_t parts = tokens % (context * sums) == 0 ? context * sums : context;
      if (groups % parts != 0)
        violations_.add(
            "contradiction", strategy_.mesh.line, "mesh",
            fmt::format("{}: tokens are routed in {} group{} per sample, but the sequence is cut into {} parts, "
                        "each of which routes its own; build the model with groups={}",
                        names_[op], groups, groups == 1 ? "" : "s", parts, fmt::join(sequence_cuts(strategy_), "x")));
      return;
    }
  }

  void place_ops() {
    for (OpId op : configs_.ids()) {
      const auto& place = configs_[op]->place;
      if (!place) continue;
      const Signature& signature = graph_.signature(op);
      std::vector<DeviceId> devices;
      bool fine = true;
      for (std::int64_t device : place->value.devices) {
        if (device < 0 || device >= cluster_.device_count()) {
          violations_.add_once(
              "mesh", place->rule,
              fmt::format("place: device {}: the cluster has 0 to {}", device, cluster_.device_count() - 1));
          fine = false;
        }
        devices.emplace_back(static_cast<std::size_t>(device));
      }
      for (const MeshAxis& degree : place->value.degrees) {
        const int axis = signature.axis_named(degree.name);
        fine = fine && axis >= 0 && splittable_or_single(signature, axis);
        if (axis < 0 || !splittable_or_single(signature, axis))
          violations_.add_once("unknown-axis", place->rule,
                               fmt::format("{}: no axis '{}' to split", names_[op], degree.name));
        else if (const std::int64_t size = signature.axes[static_cast<std::size_t>(axis)].size;
                 degree.size < 1 || size % degree.size != 0)
          violations_.add_once(
              "does-not-divide", place->rule,
              fmt::format("{}: axis {} of {} does not divide by {}", names_[op], degree.name, size, degree.size));
      }
      if (fine) check_stage_of_placement(op, place->rule, devices);
      Result<Mesh> mesh = Mesh::make(place->value.degrees, std::move(devices));
      if (!mesh.ok()) violations_.add_once("mesh", place->rule, fmt::format("place: {}", mesh.error().message));
      if (!mesh.ok() || !fine) continue;
      const auto known = std::find(resolved_.placements.begin(), resolved_.placements.end(), *mesh);
      resolved_.placed[op] = static_cast<std::size_t>(known - resolved_.placements.begin());
      if (known == resolved_.placements.end()) resolved_.placements.push_back(std::move(mesh).value());
    }
  }

  // A pipeline rank runs its own stages only, so an operator is placed on devices of its stage's rank.
  void check_stage_of_placement(OpId op, std::size_t rule, const std::vector<DeviceId>& devices) {
    if (resolved_.schedule.ranks <= 1 || resolved_.meshes.empty()) return;
    const int stage = resolved_.routes.front().stage[op];
    if (stage < 0) return;  // a backward operator, whose rule is a violation already
    if (static_cast<std::size_t>(stage) >= resolved_.meshes.size()) return;
    const Mesh& mesh = resolved_.meshes[static_cast<std::size_t>(stage)].mesh;
    const auto wrong =
        std::find_if(devices.begin(), devices.end(), [&](DeviceId device) { return mesh.position_of(device) < 0; });
    if (wrong != devices.end())
      violations_.add_once(
          "contradiction", rule,
          fmt::format("{}: device {} is not one of stage {}; place it there, or move the operator to another stage",
                      names_[op], wrong->index(), stage));
  }

  // The ring of ring attention is along the axes that split tokens.
  void resolve_ring() {
    resolved_.context = strategy_.context;
    if (strategy_.context != ContextMode::Ring || resolved_.choices.empty()) return;
    bool fused = false;
    for (OpId op : graph_.ops().ids()) fused = fused || graph_.kind(op) == OpKind::Attention;
    if (!fused)
      violations_.add(
          "contradiction", strategy_.context_line, "context",
          "ring attention needs the fused attention operator, which the model does not have; write gather or a2a");
    const ShardingChoices& sharding = resolved_.choices.front().sharding;
    for (std::size_t m = 0; m < sharding.inputs.size(); ++m)
      for (const auto& [input, choice] : sharding.inputs[m])
        if (choice.dim == 1) resolved_.ring |= MeshAxes{1} << m;
    if (resolved_.ring == 0)
      violations_.add("contradiction", strategy_.context_line, "context",
                      "ring attention needs a mesh axis that splits the tokens of the inputs; write inputs: {cp: 1}");
  }

  const Strategy& strategy_;
  const Graph& graph_;
  const Cluster& cluster_;
  Violations violations_;
  Inheritance inheritance_;
  Layers layers_;
  TensorParallel structure_;
  IdVec<OpId, std::string> names_;
  const NodeConfig no_config_ = {};  // of most operators
  std::deque<NodeConfig> held_configs_;
  IdVec<OpId, const NodeConfig*> configs_;
  bool backward_rules_ = false;
  std::vector<std::string> mesh_names_, known_nodes_;
  ResolvedStrategy resolved_;
};

}  // namespace

int StorageChoice::zero() const {
  if (axes_of(Stored::Weights) != 0) return 3;
  if (axes_of(Stored::Gradients) != 0) return 2;
  return axes_of(Stored::Optimizer) != 0 ? 1 : 0;
}

std::vector<Violation> validate(const Strategy& strategy, const TrainingGraph& training, const Cluster& cluster,
                                std::string_view file) {
  Resolver resolver(strategy, training, cluster, file);
  resolver.run();
  return resolver.take_violations();
}

Result<ResolvedStrategy> resolve(const Strategy& strategy, const TrainingGraph& training, const Cluster& cluster,
                                 std::string_view file) {
  Resolver resolver(strategy, training, cluster, file);
  ResolvedStrategy resolved = resolver.run();
  const std::vector<Violation> violations = resolver.take_violations();
  if (violations.empty()) return resolved;
  if (violations.size() == 1) return error("{}", print(violations.front()));
  return error("{} (and {} more)", print(violations.front()), violations.size() - 1);
}

}  // namespace weft
