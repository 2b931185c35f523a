#include "strategy/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>

#include "base/checked.h"
#include "base/suggest.h"
#include "strategy/axis_decision.h"
#include "strategy/rank_meshes.h"
#include "strategy/schedules.h"
#include "strategy/stages.h"
#include "strategy/structure.h"

namespace weft {
namespace {

// Integer shares of `size` in the given ratio, in granules, by largest remainder; what is no whole granule goes to the
// last.
std::vector<std::int64_t> shares(std::int64_t size, std::int64_t granule, const std::vector<std::int64_t>& ratio) {
  const std::int64_t units = size / granule, sum = std::accumulate(ratio.begin(), ratio.end(), std::int64_t{0});
  std::vector<std::int64_t> parts;
  std::vector<std::pair<std::int64_t, std::size_t>> remainders;
  std::int64_t given = 0;
  for (std::size_t i = 0; i < ratio.size(); ++i) {
    parts.push_back(units * ratio[i] / sum);
    given += parts.back();
    remainders.emplace_back(-(units * ratio[i] % sum), i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (std::int64_t left = units - given; left > 0; --left)
    ++parts[remainders[static_cast<std::size_t>(left - 1)].second];
  for (std::int64_t& part : parts) part *= granule;
  parts.back() += size % granule;
  return parts;
}

// A product that stays where it is when it would overflow: already more parts than anything has elements.
std::int64_t times(std::int64_t parts, std::int64_t more) { return checked_mul(parts, more).value_or(parts); }

class Resolver {
 public:
  Resolver(const Strategy& strategy, const TrainingGraph& training, const Cluster& cluster, std::string_view file)
      : strategy_(strategy), graph_(training.graph), cluster_(cluster), file_(file), inheritance_(strategy) {}

  ResolvedStrategy run() {
    layers_ = find_layers(graph_);
    structure_ = find_tensor_parallel(graph_, layers_);
    name_ops();
    resolve_schedule();
    resolve_meshes();
    check_rules();
    resolved_.stage = assign_stages(strategy_.schedule, resolved_.stages, graph_, layers_, reporter());
    for (OpId op : graph_.ops().ids()) {
      const Op& described = graph_.ops()[op];
      const bool wanted = described.phase == Phase::Forward || (described.phase == Phase::Backward && backward_rules_);
      configs_.push_back(wanted ? &held_configs_.emplace_back(inheritance_.of(names_[op])) : &no_config_);
    }
    for (MeshChoices& choices : resolved_.choices) {
      choose_ops(choices);
      choose_inputs(choices);
      choose_reduction(choices);
      choose_storage(choices);
    }
    report_unused_axes();
    check_heads();
    place_ops();
    IdVec<OpId, std::optional<Inherited<Recompute>>> modes;
    for (const NodeConfig* config : configs_) modes.push_back(config->recompute);
    resolved_.recompute = assign_recompute(modes, graph_, layers_);
    resolve_ring();
    return std::move(resolved_);
  }

  std::vector<Violation> take_violations() { return std::move(violations_); }

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

  std::string place(Line line, std::string_view otherwise) const {
    if (line.number > 0) return fmt::format("{}:{}", file_, line.number);
    return otherwise.empty() ? file_ : fmt::format("{}: {}", file_, otherwise);
  }
  void violate(std::string_view name, Line line, std::string_view where, std::string message) {
    violations_.push_back({std::string(name), place(line, where), std::move(message)});
  }
  void violate(std::string_view name, std::size_t rule, std::string message) {
    const Rule& at = strategy_.rules[rule];
    violate(name, at.line, fmt::format("rule '{}'", at.match), std::move(message));
  }
  Report reporter() {
    return [this](std::string_view name, Line line, std::string_view part, std::string message) {
      violate(name, line, part, std::move(message));
    };
  }

  void resolve_schedule() {
    const ScheduleConfig& given = strategy_.schedule;
    const std::int64_t ranks = std::max<std::int64_t>(strategy_.mesh.size_of(kPipelineAxis), 1);
    resolved_.schedule = {given.name, ranks, given.interleave, given.micro_batches};
    const PipelineSchedule* schedule = find_schedule(given.name);
    const Report report = reporter();
    if (!schedule) {
      report("schedule", given.line, "schedule",
             fmt::format("schedule '{}' unknown{}", given.name, did_you_mean(given.name, pipeline_schedule_names())));
      resolved_.stages = ranks;
      return;
    }
    for (std::string& need : schedule_violations(*schedule, ranks, given.interleave, given.micro_batches))
      report("schedule", given.line, "schedule", std::move(need));
    const std::int64_t interleave = std::max<std::int64_t>(given.interleave, 1);
    resolved_.schedule.chunks = chunk_count(*schedule, interleave);
    resolved_.stages = stage_count(*schedule, ranks, interleave);
    if (!given.stages.empty() && static_cast<std::int64_t>(given.stages.size()) != resolved_.stages)
      report("stages", given.stages.front().line, "schedule",
             fmt::format("{} stages are listed, but pp={} with schedule {} has {}", given.stages.size(), ranks,
                         given.name, resolved_.stages));
  }

  void resolve_meshes() {
    StrategyMeshes meshes = find_meshes(strategy_, cluster_, reporter());
    mesh_names_ = std::move(meshes.names);
    const auto sizes = [&](auto&& size_of) {
      std::vector<MeshAxis> axes;
      for (const std::string& name : meshes.operator_axes) axes.push_back({name, size_of(name)});
      return axes;
    };
    for (Mesh& mesh : meshes.ranks) {
      const std::size_t choices = choices_for(sizes([&](const std::string& name) {
        const int axis = mesh.axis_named(name);
        return axis < 0 ? 1 : mesh.axes()[static_cast<std::size_t>(axis)].size;
      }));
      resolved_.ranks.push_back({std::move(mesh), choices});
    }
    // Without meshes there are faults; the rest is looked at as far as the declaration goes.
    if (meshes.ranks.empty()) choices_for(sizes([&](const std::string& name) { return strategy_.mesh.size_of(name); }));
  }
  std::size_t choices_for(std::vector<MeshAxis> axes) {
    for (std::size_t i = 0; i < resolved_.choices.size(); ++i)
      if (resolved_.choices[i].axes == axes) return i;
    MeshChoices choices;
    choices.sharding.ops.resize(axes.size());
    choices.sharding.inputs.resize(axes.size());
    choices.sharding.reduce_onto.resize(axes.size());
    choices.axes = std::move(axes);
    resolved_.choices.push_back(std::move(choices));
    return resolved_.choices.size() - 1;
  }
  // Whether an operator runs on a mesh with these choices; on all of them while the meshes are not known.
  bool runs_on(const MeshChoices& choices, OpId op) const {
    if (resolved_.ranks.empty() || resolved_.choices.size() == 1) return true;
    const PipelineSchedule* schedule = find_schedule(strategy_.schedule.name);
    const OpId forward = graph_.ops()[op].phase == Phase::Forward ? op : graph_.ops()[op].forward;
    if (!schedule || !forward.valid()) return true;
    const auto rank =
        static_cast<std::size_t>(rank_of_stage(*schedule, resolved_.schedule.ranks, resolved_.stage[forward]));
    return &choices == &resolved_.choices[resolved_.ranks[rank].choices];
  }

  void check_mesh_axis(std::size_t rule, const std::string& axis) {
    if (axis == kPipelineAxis)
      violate("contradiction", rule, "pp cuts the model into stages, it splits no operator; write it in schedule");
    else if (!std::binary_search(mesh_names_.begin(), mesh_names_.end(), axis))
      violate("unknown-axis", rule,
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
        violate("unknown-module", i,
                fmt::format("'{}' covers no module, operator or tensor{}", rule.match,
                            did_you_mean(rule.match, known_nodes())));
      for (const auto& [axis, split] : rule.compute) check_mesh_axis(i, axis);
      for (const auto& [axis, dim] : rule.inputs) check_mesh_axis(i, axis);
      for (const Storage& storage : rule.memory)
        for (const std::string& axis : storage.over.value_or(std::vector<std::string>{})) check_mesh_axis(i, axis);
      if (rule.place && !rule.compute.empty())
        violate("contradiction", i, "an operator is split over mesh axes or placed on devices, not both");
      if (backward && (rule.recompute || rule.place))
        violate("contradiction", i, "recompute and place belong to forward operators; name them without '@'");
    }
    for (const Stage& stage : strategy_.schedule.stages)
      for (const std::string& pattern : stage.modules)
        if (!covers_anything(Glob(pattern)))
          violate("unknown-module", stage.line, "schedule",
                  fmt::format("stage module '{}' covers nothing{}", pattern, did_you_mean(pattern, known_nodes())));
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

  // Explicit splits of every operator along every axis of a mesh.
  void choose_ops(MeshChoices& choices) {
    for (OpId op : configs_.ids()) {
      if (configs_[op]->compute.empty() || !runs_on(choices, op)) continue;
      const Signature& signature = graph_.signature(op);
      std::map<int, std::int64_t> parts;  // by operator axis: parts so far, major mesh axes first
      for (std::size_t m = 0; m < choices.axes.size(); ++m) {
        const auto found = configs_[op]->compute.find(choices.axes[m].name);
        if (found == configs_[op]->compute.end()) continue;
        const auto& [split, rule, depth] = found->second;
        if (split.axis.empty()) {
          choices.sharding.ops[m][op] = {};
          applied_.insert({rule, choices.axes[m].name});
          continue;
        }
        const int axis = signature.axis_named(split.axis);
        if (axis < 0 || !splittable_or_single(signature, axis)) continue;
        applied_.insert({rule, choices.axes[m].name});
        if (split.outer < 1 ||
            std::any_of(split.ratio.begin(), split.ratio.end(), [](auto share) { return share < 1; })) {
          once("contradiction", rule, "outer and the shares of a ratio are at least 1");
          continue;
        }
        std::int64_t& cut = parts.try_emplace(axis, split.outer).first->second;
        if (cut > split.outer && choices.axes[m].size > 1 && windowed(signature, axis))
          once("contradiction", rule,
               fmt::format("{}: axis {} has a window and is cut by one mesh axis only, not by {} as well", names_[op],
                           split.axis, choices.axes[m].name));
        choose_axis(op, axis, split, rule, choices.axes[m], cut, choices.sharding.ops[m]);
      }
    }
  }
  static bool splittable_or_single(const Signature& signature, int axis) {
    return splittable(signature, axis) || signature.axes[static_cast<std::size_t>(axis)].size == 1;
  }
  void choose_axis(OpId op, int axis, const Split& split, std::size_t rule, const MeshAxis& mesh_axis,
                   std::int64_t& cut, std::map<OpId, AxisChoice>& into) {
    AxisChoice choice{split.axis, split.outer, {}};
    if (mesh_axis.size <= 1) {  // cuts nothing, but what follows on a larger mesh takes it up
      into[op] = std::move(choice);
      return;
    }
    const Axis& known = graph_.signature(op).axes[static_cast<std::size_t>(axis)];
    const std::int64_t size = known.size % cut == 0 ? known.size / cut : 0;
    if (!split.ratio.empty()) {
      if (static_cast<int>(split.ratio.size()) != mesh_axis.size)
        once("contradiction", rule,
             fmt::format("ratio {} has {} shares, but {}={}", fmt::join(split.ratio, ":"), split.ratio.size(),
                         mesh_axis.name, mesh_axis.size));
      else if (cut > split.outer)
        once("contradiction", rule,
             fmt::format("{}: axis {} is cut by another mesh axis before {}; an axis with a ratio is cut once",
                         names_[op], split.axis, mesh_axis.name));
      else if (size / mesh_axis.size < known.granule)
        once("does-not-divide", rule, does_not_divide(op, split.axis, known.size, mesh_axis, cut));
      else
        choice.sizes = shares(size, known.granule, split.ratio);
      if (std::find(choice.sizes.begin(), choice.sizes.end(), 0) != choice.sizes.end())
        once("does-not-divide", rule,
             fmt::format("{}: axis {} of {} in the ratio {} leaves a device nothing; take a flatter ratio", names_[op],
                         split.axis, known.size, fmt::join(split.ratio, ":")));
    } else if (size == 0 || size % mesh_axis.size != 0) {
      once("does-not-divide", rule, does_not_divide(op, split.axis, known.size, mesh_axis, cut));
    }
    cut = times(cut, mesh_axis.size);
    into[op] = std::move(choice);
  }
  bool is_vocabulary(OpId op, std::string_view axis) const {
    if (graph_.kind(op) == OpKind::Embedding) return axis == "v";
    return axis == "n" && std::any_of(structure_.ops.begin(), structure_.ops.end(), [&](const TensorParallelOp& found) {
             return found.op == op && found.role == TensorRole::Head;
           });
  }
  std::string does_not_divide(OpId op, std::string_view axis, std::int64_t size, const MeshAxis& mesh_axis,
                              std::int64_t cut) const {
    const OpKind kind = graph_.kind(op);
    const std::int64_t parts = times(cut, mesh_axis.size), unit = times(parts, 128);
    std::string what = fmt::format("axis {} of {} does", axis, size);
    std::string remedy = fmt::format("choose {} so that {} divides {}", mesh_axis.name, parts, size);
    if (is_vocabulary(op, axis)) {
      what = fmt::format("the vocabulary of {} does", size);
      remedy = fmt::format("pad it, vocab={}", times((size - 1) / unit + 1, unit));
    } else if (kind == OpKind::ExpertLinear && axis == "e") {
      what = fmt::format("{} experts do", size);
    } else if (kind == OpKind::Attention && axis == "g") {
      what = fmt::format("{} key/value heads do", size);
    }
    return fmt::format("{}: {} not divide over {}={}{}; {}", names_[op], what, mesh_axis.name, mesh_axis.size,
                       cut > 1 ? fmt::format(" within {} parts", cut) : "", remedy);
  }
  // The same fault of the same rule is told once, not once per layer.
  void once(std::string_view name, std::size_t rule, std::string message) {
    const std::size_t colon = message.find(": ");
    if (told_.insert({rule, layer_glob(message.substr(0, colon)) + message.substr(std::min(colon, message.size()))})
            .second)
      violate(name, rule, std::move(message));
  }

  // Rules whose operator axis none of the operators they cover has.
  void report_unused_axes() {
    for (std::size_t i = 0; i < strategy_.rules.size(); ++i) {
      const Glob glob(strategy_.rules[i].match);
      for (const auto& [mesh_axis, split] : strategy_.rules[i].compute) {
        if (applied_.contains({i, mesh_axis}) || !std::binary_search(mesh_names_.begin(), mesh_names_.end(), mesh_axis))
          continue;
        std::set<std::string> have;
        bool any = false;
        for (OpId op : graph_.ops().ids()) {
          if (!glob.covers(names_[op])) continue;
          const Signature& signature = graph_.signature(op);
          any = any || (signature.axis_named(split.axis) >= 0);
          for (int axis = 0; axis < static_cast<int>(signature.axes.size()); ++axis)
            if (splittable(signature, axis)) have.insert(signature.axes[static_cast<std::size_t>(axis)].name);
        }
        // With the axis there, a more specific rule has taken its place, which is as it should be.
        if (!any && !have.empty())
          violate("unknown-axis", i,
                  fmt::format("no operator of '{}' has an axis '{}' to split; they have {}", strategy_.rules[i].match,
                              split.axis, fmt::join(have, ", ")));
      }
    }
  }

  void choose_inputs(MeshChoices& choices) {
    for (TensorId id : graph_.tensors().ids()) {
      const Tensor& tensor = graph_.tensors()[id];
      if (tensor.kind != TensorKind::Input) continue;
      const auto uses = graph_.uses(id);
      if (std::none_of(uses.begin(), uses.end(), [&](const Use& use) { return runs_on(choices, use.op); })) continue;
      const NodeConfig config = inheritance_.of(graph_.name(id));
      std::map<int, std::int64_t> parts;
      for (std::size_t m = 0; m < choices.axes.size(); ++m) {
        const auto found = config.inputs.find(choices.axes[m].name);
        if (found == config.inputs.end() || found->second.value < 0) continue;
        const int dim = found->second.value;
        if (dim >= static_cast<int>(tensor.type.shape.size())) continue;
        const std::int64_t size = tensor.type.shape[static_cast<std::size_t>(dim)];
        if (size == 1) continue;  // broadcast over the batch
        std::int64_t& cut = parts.try_emplace(dim, 1).first->second;
        cut = times(cut, choices.axes[m].size);
        if (size % cut != 0)
          once("does-not-divide", found->second.rule,
               fmt::format("{}: {} {} does not divide over {} parts ({}={}); choose a {} that is a multiple",
                           graph_.name(id), dim == 0 ? "batch" : fmt::format("dimension {} of", dim), size, cut,
                           choices.axes[m].name, choices.axes[m].size, dim == 0 ? "micro-batch" : "size"));
        choices.sharding.inputs[m][id] = {dim};
      }
    }
  }

  void choose_reduction(MeshChoices& choices) {
    const bool first = &choices == &resolved_.choices.front();
    const auto wrong = [&](std::string_view name, std::string message) {
      if (first) violate(name, strategy_.reduce_onto_line, "sequence_parallel", std::move(message));
    };
    for (const auto& [mesh_axis, axis] : strategy_.reduce_onto) {
      if (!std::binary_search(mesh_names_.begin(), mesh_names_.end(), mesh_axis))
        wrong("unknown-axis", fmt::format("the mesh has no axis '{}', only {}{}", mesh_axis,
                                          fmt::join(mesh_names_, ", "), did_you_mean(mesh_axis, mesh_names_)));
      if (std::none_of(graph_.signatures().begin(), graph_.signatures().end(),
                       [&axis = axis](const Signature& signature) { return signature.axis_named(axis) >= 0; }))
        wrong("unknown-axis", fmt::format("no operator of the model has an axis '{}' to scatter sums along", axis));
      for (std::size_t m = 0; m < choices.axes.size(); ++m) {
        if (choices.axes[m].name != mesh_axis) continue;
        choices.sharding.reduce_onto[m] = axis;
        // The sequence is cut by the axes that split tokens, each part again by this one.
        std::int64_t parts = choices.axes[m].size;
        for (std::size_t other = 0; other < choices.axes.size(); ++other)
          if (std::any_of(choices.sharding.inputs[other].begin(), choices.sharding.inputs[other].end(),
                          [](const auto& input) { return input.second.dim == 1; }))
            parts = times(parts, choices.axes[other].size);
        for (const TensorParallelOp& found : structure_.ops) {
          const Signature& signature = graph_.signature(found.op);
          const int index = signature.axis_named(axis);
          if (found.role != TensorRole::Row || index < 0 || !runs_on(choices, found.op)) continue;
          const std::int64_t size = signature.axes[static_cast<std::size_t>(index)].size;
          if (size % parts != 0)
            wrong("does-not-divide",
                  fmt::format("{}: axis {} of {} does not divide over {} parts ({}={}); change the sequence or turn "
                              "sequence parallelism off",
                              names_[found.op], axis, size, parts, mesh_axis, choices.axes[m].size));
          break;
        }
      }
    }
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
    }
    const auto within = [](MeshAxes inner, MeshAxes outer) { return (inner & ~outer) == 0; };
    if (!within(storage.axes_of(Stored::Weights), storage.axes_of(Stored::Optimizer)) ||
        !within(storage.axes_of(Stored::Gradients), storage.axes_of(Stored::Optimizer)) ||
        !within(storage.axes_of(Stored::Weights), storage.axes_of(Stored::Gradients)))
      once("contradiction", *rule,
           "memory: weights are spread over no more axes than gradients, gradients no more than optimizer state");
    return storage;
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

  // Attention between split columns and rows must divide by heads, or its layouts do not follow.
  void check_heads() {
    for (const MeshChoices& choices : resolved_.choices)
      for (const TensorParallel::Heads& heads : structure_.heads) {
        const Signature& signature = graph_.signature(heads.op);
        const int axis = signature.axis_named("g");
        if (axis < 0 || !runs_on(choices, heads.op)) continue;
        const std::int64_t groups = signature.axes[static_cast<std::size_t>(axis)].size;
        for (std::size_t m = 0; m < choices.axes.size(); ++m) {
          const auto& ops = choices.sharding.ops[m];
          const auto column = std::find_if(heads.columns.begin(), heads.columns.end(), [&](OpId op) {
            const auto found = ops.find(op);
            return found != ops.end() && found->second.axis == "n" && found->second.sizes.empty();
          });
          if (column == heads.columns.end() || ops.contains(heads.op)) continue;
          std::int64_t parts = choices.axes[m].size;
          for (std::size_t other = 0; other < choices.axes.size(); ++other)
            if (const auto found = choices.sharding.ops[other].find(heads.op);
                found != choices.sharding.ops[other].end() && found->second.axis == "g")
              parts = times(parts, choices.axes[other].size);
          const auto& config = configs_[*column]->compute;
          if (groups % parts != 0)
            once("does-not-divide", config.at(choices.axes[m].name).rule,
                 fmt::format("{}: {} key/value heads do not divide over {} parts ({}={}); choose a divisor of {}",
                             names_[heads.op], groups, parts, choices.axes[m].name, choices.axes[m].size, groups));
        }
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
          once("mesh", place->rule,
               fmt::format("place: device {}: the cluster has 0 to {}", device, cluster_.device_count() - 1));
          fine = false;
        }
        devices.emplace_back(static_cast<std::size_t>(device));
      }
      for (const MeshAxis& degree : place->value.degrees) {
        const int axis = signature.axis_named(degree.name);
        fine = fine && axis >= 0 && splittable_or_single(signature, axis);
        if (axis < 0 || !splittable_or_single(signature, axis))
          once("unknown-axis", place->rule, fmt::format("{}: no axis '{}' to split", names_[op], degree.name));
        else if (const std::int64_t size = signature.axes[static_cast<std::size_t>(axis)].size;
                 degree.size < 1 || size % degree.size != 0)
          once("does-not-divide", place->rule,
               fmt::format("{}: axis {} of {} does not divide by {}", names_[op], degree.name, size, degree.size));
      }
      if (fine) check_stage_of_placement(op, place->rule, devices);
      Result<Mesh> mesh = Mesh::make(place->value.degrees, std::move(devices));
      if (!mesh.ok()) once("mesh", place->rule, fmt::format("place: {}", mesh.error().message));
      if (!mesh.ok() || !fine) continue;
      const auto known = std::find(resolved_.placements.begin(), resolved_.placements.end(), *mesh);
      resolved_.placed[op] = static_cast<std::size_t>(known - resolved_.placements.begin());
      if (known == resolved_.placements.end()) resolved_.placements.push_back(std::move(mesh).value());
    }
  }

  // A pipeline rank plays its own stages only, so what is placed stays among its devices.
  void check_stage_of_placement(OpId op, std::size_t rule, const std::vector<DeviceId>& devices) {
    if (resolved_.schedule.ranks <= 1 || resolved_.ranks.empty()) return;
    const PipelineSchedule* schedule = find_schedule(strategy_.schedule.name);
    if (!schedule) return;
    const int stage = resolved_.stage[op];
    const Mesh& mesh =
        resolved_.ranks[static_cast<std::size_t>(rank_of_stage(*schedule, resolved_.schedule.ranks, stage))].mesh;
    const auto wrong =
        std::find_if(devices.begin(), devices.end(), [&](DeviceId device) { return mesh.position_of(device) < 0; });
    if (wrong != devices.end())
      once("contradiction", rule,
           fmt::format("{}: device {} is not one of stage {}; place it there, or move the operator to another stage",
                       names_[op], wrong->index(), stage));
  }

  // Ring attention goes around the axes that split tokens.
  void resolve_ring() {
    resolved_.context = strategy_.context;
    if (strategy_.context != ContextMode::Ring || resolved_.choices.empty()) return;
    bool fused = false;
    for (OpId op : graph_.ops().ids()) fused = fused || graph_.kind(op) == OpKind::Attention;
    if (!fused)
      violate("contradiction", strategy_.context_line, "context",
              "ring attention needs the fused attention operator, which the model does not have; write gather or a2a");
    const ShardingChoices& sharding = resolved_.choices.front().sharding;
    for (std::size_t m = 0; m < sharding.inputs.size(); ++m)
      for (const auto& [input, choice] : sharding.inputs[m])
        if (choice.dim == 1) resolved_.ring |= MeshAxes{1} << m;
    if (resolved_.ring == 0)
      violate("contradiction", strategy_.context_line, "context",
              "ring attention needs a mesh axis that splits the tokens of the inputs; write inputs: {cp: 1}");
  }

  const Strategy& strategy_;
  const Graph& graph_;
  const Cluster& cluster_;
  std::string file_;
  Inheritance inheritance_;
  Layers layers_;
  TensorParallel structure_;
  IdVec<OpId, std::string> names_;
  const NodeConfig no_config_ = {};  // of most operators
  std::deque<NodeConfig> held_configs_;
  IdVec<OpId, const NodeConfig*> configs_;
  bool backward_rules_ = false;
  std::vector<std::string> mesh_names_, known_nodes_;
  std::set<std::pair<std::size_t, std::string>> applied_, told_;
  ResolvedStrategy resolved_;
  std::vector<Violation> violations_;
};

}  // namespace

int StorageChoice::zero() const {
  if (axes_of(Stored::Weights) != 0) return 3;
  if (axes_of(Stored::Gradients) != 0) return 2;
  return axes_of(Stored::Optimizer) != 0 ? 1 : 0;
}

std::string print(const Violation& violation) {
  return fmt::format("{}: {} [{}]", violation.place, violation.message, violation.name);
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
