#include "strategy/split_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/suggest.h"
#include "layout/axis_decision.h"

namespace weft {
namespace {

// A product that does not grow beyond 64 bits: by then there are more parts than elements anyway.
std::int64_t times(std::int64_t parts, std::int64_t more) { return checked_mul(parts, more).value_or(parts); }

bool positive(const Shares& ratio) {
  return std::all_of(ratio.begin(), ratio.end(), [](std::int64_t share) { return share >= 1; });
}

}  // namespace

bool splittable_or_single(const Signature& signature, int axis) {
  return splittable(signature, axis) || signature.axes[static_cast<std::size_t>(axis)].size == 1;
}

ShardingChoices SplitChooser::choose(const OperatorMesh& mesh) {
  ShardingChoices choices;
  choices.ops.resize(mesh.axes.size());
  choices.inputs.resize(mesh.axes.size());
  choices.reduce_onto.resize(mesh.axes.size());
  choose_ops(mesh, choices);
  choose_inputs(mesh, choices);
  choose_reduction(mesh, choices);
  return choices;
}

// Explicit splits of every operator along every axis of the mesh.
void SplitChooser::choose_ops(const OperatorMesh& mesh, ShardingChoices& choices) {
  for (OpId op : rules_.configs.ids()) {
    if (rules_.configs[op]->compute.empty() || !mesh.runs(op)) continue;
    const Signature& signature = rules_.graph.signature(op);
    std::map<int, std::int64_t> parts;  // by operator axis: parts so far, major mesh axes first
    for (std::size_t m = 0; m < mesh.axes.size(); ++m) {
      const auto found = rules_.configs[op]->compute.find(mesh.axes[m].name);
      if (found == rules_.configs[op]->compute.end()) continue;
      const auto& [split, rule, depth] = found->second;
      if (split.axis.empty()) {
        choices.ops[m][op] = {};
        applied_.insert({rule, mesh.axes[m].name});
        continue;
      }
      const int axis = signature.axis_named(split.axis);
      if (axis < 0 || !splittable_or_single(signature, axis)) continue;
      applied_.insert({rule, mesh.axes[m].name});
      if (split.outer < 1 || !positive(split.ratio)) {
        violations_.add_once("contradiction", rule, "outer and the shares of a ratio are at least 1");
        continue;
      }
      std::int64_t& cut = parts.try_emplace(axis, split.outer).first->second;
      if (cut > split.outer && mesh.axes[m].size > 1 && windowed(signature, axis))
        violations_.add_once("contradiction", rule,
                             fmt::format("{}: axis {} has a window and is cut by one mesh axis only, not by {} as well",
                                         rules_.names[op], split.axis, mesh.axes[m].name));
      choose_axis(op, axis, split, rule, mesh.axes[m], cut, choices.ops[m]);
    }
  }
}

void SplitChooser::choose_axis(OpId op, int axis, const Split& split, std::size_t rule, const MeshAxis& mesh_axis,
                               std::int64_t& cut, std::map<OpId, AxisChoice>& into) const {
  AxisChoice choice{split.axis, split.outer, {}};
  const Axis& known = rules_.graph.signature(op).axes[static_cast<std::size_t>(axis)];
  const std::int64_t size = known.size % cut == 0 ? known.size / cut : 0;
  if (mesh_axis.size <= 1) {  // cuts nothing, but operators on a larger mesh inherit it
    if (!split.ratio.empty()) choice.shares = reduced(nearest_shares(size, known.granule, split.ratio));
    into[op] = std::move(choice);
    return;
  }
  if (!split.ratio.empty()) {
    if (static_cast<int>(split.ratio.size()) != mesh_axis.size)
      violations_.add_once("contradiction", rule,
                           fmt::format("ratio {} has {} shares, but {}={}", fmt::join(split.ratio, ":"),
                                       split.ratio.size(), mesh_axis.name, mesh_axis.size));
    else if (size / mesh_axis.size < known.granule)
      violations_.add_once("does-not-divide", rule, does_not_divide(op, split.axis, known.size, mesh_axis, cut));
    else
      choice.shares = reduced(nearest_shares(size, known.granule, split.ratio));
    if (!positive(choice.shares))
      violations_.add_once(
          "does-not-divide", rule,
          fmt::format("{}: axis {} of {} in the ratio {} leaves a device nothing; take a flatter ratio",
                      rules_.names[op], split.axis, known.size, fmt::join(split.ratio, ":")));
  } else if (size == 0 || size % mesh_axis.size != 0) {
    violations_.add_once("does-not-divide", rule, does_not_divide(op, split.axis, known.size, mesh_axis, cut));
  }
  cut = times(cut, units_of(choice.shares, mesh_axis.size));
  into[op] = std::move(choice);
}

bool SplitChooser::is_vocabulary(OpId op, std::string_view axis) const {
  if (rules_.graph.kind(op) == OpKind::Embedding) return axis == "v";
  return axis == "n" &&
         std::any_of(rules_.structure.ops.begin(), rules_.structure.ops.end(),
                     [&](const TensorParallelOp& found) { return found.op == op && found.role == TensorRole::Head; });
}

std::string SplitChooser::does_not_divide(OpId op, std::string_view axis, std::int64_t size, const MeshAxis& mesh_axis,
                                          std::int64_t cut) const {
  const OpKind kind = rules_.graph.kind(op);
  const std::int64_t parts = times(cut, mesh_axis.size), unit = times(parts, 128);
  std::string what = fmt::format("axis {} of {} does", axis, size);
  std::string remedy = fmt::format("choose {} so that {} divides {}", mesh_axis.name, parts, size);
  if (is_vocabulary(op, axis)) {
    what = fmt::format("the vocabulary of {} does", size);
    remedy = fmt::format("pad it, vocab={}", times((size - 1) / unit + 1, unit));
  } else if (kind == OpKind::ExpertLinear && axis == "e") {
    what = fmt::format("{} experts do", size);
    if (cut > 1 || mesh_axis.name != "ep")  // several mesh axes together form ep
      return fmt::format("{}: {} not divide over {} parts (ep); choose ep so that it divides {}", rules_.names[op],
                         what, parts, size);
  } else if (kind == OpKind::Attention && axis == "g") {
    what = fmt::format("{} key/value heads do", size);
  }
  return fmt::format("{}: {} not divide over {}={}{}; {}", rules_.names[op], what, mesh_axis.name, mesh_axis.size,
                     cut > 1 ? fmt::format(" within {} parts", cut) : "", remedy);
}

// The user chooses the batch, so a ratio of samples must divide it exactly; a ratio of heads is rounded instead.
void SplitChooser::choose_inputs(const OperatorMesh& mesh, ShardingChoices& choices) const {
  for (TensorId id : rules_.graph.tensors().ids()) {
    const Tensor& tensor = rules_.graph.tensors()[id];
    if (tensor.kind != TensorKind::Input) continue;
    const auto uses = rules_.graph.uses(id);
    if (std::none_of(uses.begin(), uses.end(), [&](const Use& use) { return mesh.runs(use.op); })) continue;
    const NodeConfig config = rules_.inheritance.of(rules_.graph.name(id));
    std::map<int, std::int64_t> parts;
    for (std::size_t m = 0; m < mesh.axes.size(); ++m) {
      const auto found = config.inputs.find(mesh.axes[m].name);
      if (found == config.inputs.end() || found->second.value.dim < 0) continue;
      const auto& [dim, ratio] = found->second.value;
      const MeshAxis& axis = mesh.axes[m];
      if (dim >= static_cast<int>(tensor.type.shape.size())) continue;
      const std::int64_t size = tensor.type.shape[static_cast<std::size_t>(dim)];
      if (size == 1) continue;  // broadcast over the batch
      InputChoice& choice = choices.inputs[m][id] = {dim, {}};
      if (!positive(ratio) || (axis.size > 1 && !ratio.empty() && static_cast<int>(ratio.size()) != axis.size)) {
        violations_.add_once(
            "contradiction", found->second.rule,
            fmt::format("inputs: ratio {} has {} shares, but {}={}; write one of at least 1 per device",
                        fmt::join(ratio, ":"), ratio.size(), axis.name, axis.size));
        continue;
      }
      choice.shares = reduced(ratio);  // with a single device: inherited on a larger mesh
      if (axis.size == 1) continue;
      std::int64_t& cut = parts.try_emplace(dim, 1).first->second;
      cut = times(cut, units_of(choice.shares, axis.size));
      if (size % cut == 0) continue;
      const std::string what = fmt::format("{}: {} {}", rules_.graph.name(id),
                                           dim == 0 ? "batch" : fmt::format("dimension {} of", dim), size);
      const std::int64_t below = size / cut * cut;
      violations_.add_once(
          "does-not-divide", found->second.rule,
          choice.shares.empty()
              ? fmt::format("{} does not divide over {} parts ({}={}); choose a {} that is a multiple", what, cut,
                            axis.name, axis.size, dim == 0 ? "micro-batch" : "size")
              : fmt::format("{} does not divide into {} shares ({} {}); the nearest that do: {}", what, cut, axis.name,
                            fmt::join(ratio, ":"),
                            below == 0 ? fmt::format("{}", cut) : fmt::format("{} or {}", below, below + cut)));
    }
  }
}

void SplitChooser::choose_reduction(const OperatorMesh& mesh, ShardingChoices& choices) {
  const bool first = std::exchange(first_mesh_, false);
  const auto wrong = [&](std::string_view name, std::string message) {
    if (first) violations_.add(name, rules_.strategy.reduce_onto_line, "sequence_parallel", std::move(message));
  };
  for (const auto& [mesh_axis, axis] : rules_.strategy.reduce_onto) {
    if (!std::binary_search(rules_.mesh_names.begin(), rules_.mesh_names.end(), mesh_axis))
      wrong("unknown-axis",
            fmt::format("the mesh has no axis '{}', only {}{}", mesh_axis, fmt::join(rules_.mesh_names, ", "),
                        did_you_mean(mesh_axis, rules_.mesh_names)));
    if (std::none_of(rules_.graph.signatures().begin(), rules_.graph.signatures().end(),
                     [&axis = axis](const Signature& signature) { return signature.axis_named(axis) >= 0; }))
      wrong("unknown-axis", fmt::format("no operator of the model has an axis '{}' to scatter sums along", axis));
    for (std::size_t m = 0; m < mesh.axes.size(); ++m) {
      if (mesh.axes[m].name != mesh_axis) continue;
      choices.reduce_onto[m] = axis;
      // The sequence is split by the axes that split tokens, each part again by this one.
      std::int64_t parts = mesh.axes[m].size;
      for (std::size_t other = 0; other < mesh.axes.size(); ++other) {
        const auto tokens = std::find_if(choices.inputs[other].begin(), choices.inputs[other].end(),
                                         [](const auto& input) { return input.second.dim == 1; });
        if (mesh.axes[other].size > 1 && tokens != choices.inputs[other].end())
          parts = times(parts, units_of(tokens->second.shares, mesh.axes[other].size));
      }
      for (const TensorParallelOp& found : rules_.structure.ops) {
        const Signature& signature = rules_.graph.signature(found.op);
        const int index = signature.axis_named(axis);
        if (found.role != TensorRole::Row || index < 0 || !mesh.runs(found.op)) continue;
        const std::int64_t size = signature.axes[static_cast<std::size_t>(index)].size;
        if (size % parts != 0)
          wrong("does-not-divide",
                fmt::format("{}: axis {} of {} does not divide over {} parts ({}={}); change the sequence or turn "
                            "sequence parallelism off",
                            rules_.names[found.op], axis, size, parts, mesh_axis, mesh.axes[m].size));
        break;
      }
    }
  }
}

void SplitChooser::check_axes() const {
  for (std::size_t i = 0; i < rules_.strategy.rules.size(); ++i) {
    const Glob glob(rules_.strategy.rules[i].match);
    for (const auto& [mesh_axis, split] : rules_.strategy.rules[i].compute) {
      if (applied_.contains({i, mesh_axis}) ||
          !std::binary_search(rules_.mesh_names.begin(), rules_.mesh_names.end(), mesh_axis))
        continue;
      std::set<std::string> have;
      bool any = false;
      for (OpId op : rules_.graph.ops().ids()) {
        if (!glob.covers(rules_.names[op])) continue;
        const Signature& signature = rules_.graph.signature(op);
        any = any || (signature.axis_named(split.axis) >= 0);
        for (int axis = 0; axis < static_cast<int>(signature.axes.size()); ++axis)
          if (splittable(signature, axis)) have.insert(signature.axes[static_cast<std::size_t>(axis)].name);
      }
      // If an operator has the axis, a more specific rule overrides this one, which is no violation.
      if (!any && !have.empty())
        violations_.add("unknown-axis", i,
                        fmt::format("no operator of '{}' has an axis '{}' to split; they have {}",
                                    rules_.strategy.rules[i].match, split.axis, fmt::join(have, ", ")));
    }
  }
}

void SplitChooser::check_heads(const OperatorMesh& mesh, const ShardingChoices& choices) const {
  for (const TensorParallel::Heads& heads : rules_.structure.heads) {
    const Signature& signature = rules_.graph.signature(heads.op);
    const int axis = signature.axis_named("g");
    // An individually placed operator has its own split, independent of its column-parallel linears.
    if (axis < 0 || !mesh.runs(heads.op) || rules_.configs[heads.op]->place) continue;
    const std::int64_t groups = signature.axes[static_cast<std::size_t>(axis)].size;
    for (std::size_t m = 0; m < mesh.axes.size(); ++m) {
      const auto& ops = choices.ops[m];
      const auto column = std::find_if(heads.columns.begin(), heads.columns.end(), [&](OpId op) {
        const auto found = ops.find(op);
        return found != ops.end() && found->second.axis == "n" && found->second.shares.empty();
      });
      if (column == heads.columns.end() || ops.contains(heads.op)) continue;
      std::int64_t parts = mesh.axes[m].size;
      for (std::size_t other = 0; other < mesh.axes.size(); ++other)
        if (const auto found = choices.ops[other].find(heads.op);
            found != choices.ops[other].end() && found->second.axis == "g")
          parts = times(parts, units_of(found->second.shares, mesh.axes[other].size));
      const auto& config = rules_.configs[*column]->compute;
      if (groups % parts != 0)
        violations_.add_once(
            "does-not-divide", config.at(mesh.axes[m].name).rule,
            fmt::format("{}: {} key/value heads do not divide over {} parts ({}={}); choose a divisor of {}",
                        rules_.names[heads.op], groups, parts, mesh.axes[m].name, mesh.axes[m].size, groups));
    }
  }
}

}  // namespace weft
