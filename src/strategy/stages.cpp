#include "strategy/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "strategy/structure.h"

namespace weft {
namespace {

// The counts as a short text.
std::string shown(const std::vector<std::int64_t>& counts) {
  if (counts.size() <= 16) return fmt::format("{}", fmt::join(counts, "+"));
  return fmt::format("{}+…", fmt::join(counts.begin(), counts.begin() + 16, "+"));
}

// The stage of every layer; empty after a report.
std::vector<int> stages_of_layers(const ScheduleConfig& schedule, std::int64_t stages, std::int64_t layers,
                                  const Report& report) {
  std::vector<std::int64_t> counts;
  if (schedule.stages.empty()) {
    if (layers % stages != 0 || layers == 0) {
      report("stages", schedule.line, "schedule",
             layers < stages ? fmt::format("{} layers cannot fill {} stages; lower pp or vpp", layers, stages)
                             : fmt::format("{} layers do not divide over {} stages; give the layers of each, stages={}",
                                           layers, stages, shown(even_stages(layers, stages))));
      return {};
    }
    counts = even_stages(layers, stages);
  } else {
    for (const Stage& stage : schedule.stages) counts.push_back(stage.layers.value_or(0));
    const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    if (sum != layers) {
      report("stages", schedule.stages.front().line, "schedule",
             fmt::format("the stages have {} = {} layers, the model {}", shown(counts), sum, layers));
      return {};
    }
  }
  std::vector<int> stage_of;
  for (std::size_t stage = 0; stage < counts.size(); ++stage)
    stage_of.insert(stage_of.end(), static_cast<std::size_t>(counts[stage]), static_cast<int>(stage));
  return stage_of;
}

// The stage of operators that the strategy names; −1: not named.
std::optional<IdVec<OpId, int>> named_stages(const ScheduleConfig& schedule, std::int64_t stages, const Graph& graph,
                                             const Layers& layers, const Report& report) {
  IdVec<OpId, int> stage(graph.ops().size(), -1);
  const bool by_modules = std::any_of(schedule.stages.begin(), schedule.stages.end(),
                                      [](const Stage& given) { return !given.modules.empty(); });
  if (!by_modules) {
    const std::vector<int> of_layer = stages_of_layers(schedule, stages, layers.count(), report);
    if (of_layer.empty()) return std::nullopt;
    for (OpId op : graph.ops().ids())
      if (layers.of[op] >= 0) stage[op] = of_layer[static_cast<std::size_t>(layers.of[op])];
    return stage;
  }
  bool fine = true;
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
    const Stage& given = schedule.stages[s];
    if (given.layers) {
      report("contradiction", given.line, "schedule",
             fmt::format("stage {}: write layers or modules, for all stages alike", s));
      fine = false;
    }
    for (const std::string& pattern : given.modules) {
      const Glob glob(pattern);
      for (OpId op : graph.ops().ids()) {
        if (graph.ops()[op].phase != Phase::Forward) break;
        if (!glob.covers(graph.name(op))) continue;
        if (stage[op] >= 0 && stage[op] != static_cast<int>(s) && fine) {
          report(
              "contradiction", given.line, "schedule",
              fmt::format("stage {}: '{}' has {} which stage {} has already", s, pattern, graph.name(op), stage[op]));
          fine = false;
        }
        stage[op] = static_cast<int>(s);
      }
    }
  }
  // A layer that no stage names would be assigned by its readers, hence it is a violation.
  std::vector<char> named(layers.names.size(), 0);
  for (OpId op : graph.ops().ids())
    if (layers.of[op] >= 0 && stage[op] >= 0) named[static_cast<std::size_t>(layers.of[op])] = 1;
  std::vector<std::string> missed;
  for (std::size_t layer = 0; layer < named.size(); ++layer)
    if (!named[layer]) missed.push_back(layers.names[layer]);
  if (!missed.empty()) {
    const std::size_t more = missed.size() > 4 ? missed.size() - 4 : 0;
    missed.resize(missed.size() - more);
    report("stages", schedule.stages.front().line, "schedule",
           fmt::format("no stage has {}{}; name every layer once", fmt::join(missed, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : ""));
    fine = false;
  }
  if (!fine) return std::nullopt;
  return stage;
}

// Reports stages without operators.
void report_idle_stages(const ScheduleConfig& schedule, std::int64_t stages, const IdVec<OpId, int>& stage,
                        const Report& report) {
  std::vector<char> used(static_cast<std::size_t>(stages), 0);
  for (int each : stage)
    if (each >= 0) used[static_cast<std::size_t>(each)] = 1;
  for (std::size_t s = 0; s < used.size(); ++s)
    if (!used[s])
      report("stages", s < schedule.stages.size() ? schedule.stages[s].line : schedule.line, "schedule",
             fmt::format("stage {} has no operator; give it a layer", s));
}

}  // namespace

std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers / stages);
  for (std::int64_t i = 0; i < layers % stages; ++i) ++counts[static_cast<std::size_t>(i)];
  return counts;
}

IdVec<OpId, int> assign_stages(const ScheduleConfig& schedule, std::int64_t stages, const Graph& graph,
                               const Layers& layers, const Report& report) {
  IdVec<OpId, int> stage(graph.ops().size(), -1);
  const auto forward = [&](OpId op) { return graph.ops()[op].phase == Phase::Forward; };
  for (OpId op : graph.ops().ids())
    if (forward(op)) stage[op] = 0;
  if (stages == 1) {
    if (schedule.stages.size() == 1 && schedule.stages[0].layers && *schedule.stages[0].layers != layers.count())
      report("stages", schedule.stages[0].line, "schedule",
             fmt::format("the only stage has {} layers, the model {}", *schedule.stages[0].layers, layers.count()));
    return stage;
  }
  const auto named = named_stages(schedule, stages, graph, layers, report);
  if (!named) return stage;

  // Whether a named operator depends on an operator, directly or indirectly.
  IdVec<OpId, char> read_by_named(graph.ops().size(), 0);
  std::vector<OpId> backwards;
  for (OpId op : graph.ops().ids())
    if (forward(op)) backwards.push_back(op);
  for (auto op = backwards.rbegin(); op != backwards.rend(); ++op) {
    if ((*named)[*op] < 0 && !read_by_named[*op]) continue;
    for (TensorId input : graph.inputs(*op))
      if (const OpId producer = graph.tensors()[input].producer; producer.valid()) read_by_named[producer] = 1;
  }
  bool ordered = true;
  for (OpId op : backwards) {
    int after = 0;
    for (TensorId input : graph.inputs(op))
      if (const OpId producer = graph.tensors()[input].producer; producer.valid())
        after = std::max(after, stage[producer]);
    if ((*named)[op] < 0) {
      stage[op] = read_by_named[op] ? after : static_cast<int>(stages) - 1;
      continue;
    }
    stage[op] = (*named)[op];
    if (stage[op] < after && ordered) {
      report("stages", schedule.stages.empty() ? schedule.line : schedule.stages.front().line, "schedule",
             fmt::format("{} is in stage {} but reads what stage {} makes; stages follow the data", graph.name(op),
                         stage[op], after));
      ordered = false;
    }
  }
  report_idle_stages(schedule, stages, stage, report);
  return stage;
}

RecomputeRegions assign_recompute(const IdVec<OpId, std::optional<Inherited<Recompute>>>& modes, const Graph& graph,
                                  const Layers& layers) {
  RecomputeRegions regions = RecomputeRegions::none(graph);
  std::optional<IdVec<OpId, int>> cores;
  std::map<std::pair<int, std::string>, int> numbers;  // (mode, node) → region
  // With mode `op`, outputs of matrix products are saved, and tokens that were dispatched to experts.
  const auto is_kept = [&](OpId op) {
    const OpKind kind = graph.kind(op);
    return !graph.signature(op).contractions.empty() || kind == OpKind::Dispatch || kind == OpKind::DispatchWeights ||
           kind == OpKind::Combine;
  };
  const auto layer_of = [&](OpId op) -> std::string_view {
    return layers.of[op] >= 0 ? std::string_view(layers.names[static_cast<std::size_t>(layers.of[op])]) : "";
  };
  const auto names_its_module = [&](OpId op) {
    const auto depth = static_cast<std::size_t>(modes[op]->depth);
    return depth >= components(layer_of(op)).size() && depth > 0;
  };
  // Layers with mode `op`. Modules in them with mode `full` join the region of the layer: as regions of their own they
  // would save their inputs and outputs.
  std::vector<char> layer_by_operators(layers.names.size());
  for (OpId op : graph.ops().ids())
    if (modes[op] && modes[op]->value == Recompute::Op && layers.of[op] >= 0 && !names_its_module(op))
      layer_by_operators[static_cast<std::size_t>(layers.of[op])] = 1;
  std::vector<OpId> by_operators;
  for (OpId op : graph.ops().ids()) {
    if (!modes[op] || graph.ops()[op].phase != Phase::Forward) continue;
    Recompute mode = modes[op]->value;
    std::string node;
    if (mode == Recompute::None) continue;
    if (mode == Recompute::Selective) {
      if (!cores) cores = find_attention_cores(graph);
      if ((*cores)[op] < 0) continue;
      node = fmt::format("{}", (*cores)[op]);
    } else {
      if (mode == Recompute::Op) regions.kept[op] = is_kept(op);
      // The node that the rule names; a node above the layers means each layer.
      node = layer_of(op);
      if (mode == Recompute::Full && layers.of[op] >= 0 &&
          layer_by_operators[static_cast<std::size_t>(layers.of[op])] != 0) {
        mode = Recompute::Op;
      } else if (names_its_module(op)) {
        const std::string name = graph.name(op);
        const std::string_view last = components(name)[static_cast<std::size_t>(modes[op]->depth) - 1];
        node = name.substr(0, static_cast<std::size_t>(last.end() - std::string_view(name).begin()));
      }
      if (node.empty()) continue;
    }
    const auto [known, fresh] = numbers.try_emplace({static_cast<int>(mode), node}, static_cast<int>(numbers.size()));
    regions.region[op] = known->second;
    if (mode == Recompute::Op) by_operators.push_back(op);
  }
  // Nor is an operator recomputed whose outputs the backward pass does not read again, such as the residual sum that
  // the next layer reads.
  for (auto op = by_operators.rbegin(); op != by_operators.rend(); ++op) {
    const auto reads_it_again = [&](const Use& use) {
      const Op& reader = graph.ops()[use.op];
      const bool backward = reader.phase == Phase::Backward && regions.of(reader.forward) == regions.of(*op);
      return backward || (regions.again(use.op) && regions.of(use.op) == regions.of(*op));
    };
    const auto outputs = graph.outputs(*op);
    if (std::none_of(outputs.begin(), outputs.end(), [&](TensorId output) {
          const auto uses = graph.uses(output);
          return std::any_of(uses.begin(), uses.end(), reads_it_again);
        }))
      regions.kept[*op] = 1;
  }
  return regions;
}

}  // namespace weft
