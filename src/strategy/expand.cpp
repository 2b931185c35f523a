// A shorthand's tree: the mesh, and the rules of its presets.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "strategy/layers.h"
#include "strategy/presets.h"
#include "strategy/schedules.h"
#include "strategy/shorthand.h"
#include "strategy/stages.h"

namespace weft {
namespace {

// The order of ranks over the axes of the mesh, innermost first; empty if it is the mesh's own. A degree stands for the
// axes that it is refined into, ep for a part of dp unless it is named; axes that are not named come last.
std::vector<std::string> rank_order(const Parallelism& plan, const MeshDeclaration& mesh) {
  std::vector<std::string> usual, order;
  for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); ++axis) usual.push_back(axis->name);
  std::vector<std::string> named = plan.order;
  if (named.empty()) named = {"tp", "cp", "ep", "dp", "pp"};
  const auto add = [&](const std::string& axis) {
    const bool known = std::find(usual.begin(), usual.end(), axis) != usual.end();
    if (known && std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
  };
  const bool ep_named = std::find(named.begin(), named.end(), "ep") != named.end();
  if (plan.h * plan.w > 1 && plan.order.empty()) add("w"), add("h");
  for (const std::string& name : named) {
    if (name == "tp") add("etp"), add("eptp");
    if (name == "cp") add("ecp");
    if (name == "dp" && !ep_named) add("ep");
    if (name == "dp") add("fsdp");
    add(name == "dp" && plan.fsdp < plan.dp ? "replicate" : name);
  }
  for (const std::string& axis : usual) add(axis);
  return order == usual ? std::vector<std::string>{} : order;
}

// The mesh, and the role of each of its axes.
struct FoldedMesh {
  MeshDeclaration mesh;
  std::vector<std::string> data, context, tensor;   // axes that split samples, the sequence, and layers
  std::vector<std::string> experts, expert_tensor;  // over which experts are distributed; that split each
  std::vector<std::string> shards, expert_shards;   // over which ZeRO shards parameters; those of experts
};

FoldedMesh fold(const Parallelism& plan) {
  FoldedMesh made;
  // Experts are distributed over the innermost devices: tp/etp of tp, then cp, then dp.
  const std::int64_t tp_per_etp = plan.tp / plan.etp, ep_of_tp = std::gcd(plan.ep, tp_per_etp);
  const std::int64_t ep_of_cp = std::gcd(plan.ep / ep_of_tp, plan.cp), ep_of_dp = plan.ep / ep_of_tp / ep_of_cp;
  const auto add = [&](const char* name, std::int64_t size, std::vector<std::string>& role) {
    if (size == 1) return false;
    made.mesh.axes.push_back({name, static_cast<int>(size)});
    role.push_back(name);
    return true;
  };
  std::vector<std::string> none;
  const bool hybrid = plan.fsdp < plan.dp;
  add("pp", plan.pp, none);
  if (hybrid) add("replicate", plan.dp / plan.fsdp, made.data);
  add(hybrid ? "fsdp" : "dp", plan.fsdp / ep_of_dp, made.shards);
  if (add("ep", ep_of_dp, made.shards)) made.experts.push_back("ep");
  made.data.insert(made.data.end(), made.shards.begin(), made.shards.end());
  add("cp", plan.cp / ep_of_cp, made.context);
  if (add("ecp", ep_of_cp, made.context)) made.experts.push_back("ecp");
  if (plan.etp == plan.tp) {
    if (add("tp", plan.tp, made.tensor)) made.expert_tensor = {"tp"};
  } else {
    add("tp", tp_per_etp / ep_of_tp, made.tensor);
    if (add("etp", plan.etp, made.tensor)) made.expert_tensor = {"etp"};
    if (add("eptp", ep_of_tp, made.tensor)) made.experts.push_back("eptp");
  }
  add("h", plan.h, none);
  add("w", plan.w, none);
  made.mesh.order = rank_order(plan, made.mesh);
  made.shards.insert(made.shards.end(), made.context.begin(), made.context.end());
  // Devices of tp over which etp does not split experts hold replicas of them.
  made.expert_shards = made.shards;
  if (plan.etp < plan.tp && tp_per_etp > ep_of_tp) made.expert_shards.push_back("tp");
  return made;
}

// The node that the glob names in this layer: "layers.*.mlp" in "layers.7" is "layers.7.mlp"; none if it names none.
std::optional<std::string> in_layer(std::string_view glob, const std::string& layer) {
  const std::vector<std::string_view> parts = components(glob), names = components(layer);
  if (parts.size() < names.size()) return std::nullopt;
  std::string made = layer;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i >= names.size())
      made += fmt::format(".{}", parts[i]);
    else if (!Glob(parts[i]).covers(names[i]))
      return std::nullopt;
  }
  return made;
}

// Recomputation of some modules, and of some layers only.
std::vector<Rule> recompute_rules(const Parallelism& plan, const Graph& graph) {
  std::vector<Rule> rules;
  const Layers layers = find_layers(graph);
  const std::int64_t stage_number = stage_count(*find_schedule(plan.schedule), plan.pp, plan.vpp);
  const std::vector<std::int64_t> stages =
      plan.stages.empty() ? even_stages(layers.count(), stage_number) : plan.stages;
  const auto add = [&](const std::string& modules, const std::vector<std::int64_t>& first_layers, Recompute mode) {
    bool in_layers = false;
    std::size_t layer = 0;
    for (std::size_t stage = 0; stage < stages.size() && !first_layers.empty(); ++stage)
      for (std::int64_t i = 0; i < stages[stage] && layer < layers.names.size(); ++i, ++layer) {
        const std::optional<std::string> node = in_layer(modules, layers.names[layer]);
        in_layers = in_layers || node;
        if (node && i < first_layers[first_layers.size() == 1 ? 0 : stage])
          rules.push_back({.match = *node, .recompute = mode});
      }
    if (!in_layers) rules.push_back({.match = modules, .recompute = mode});
  };
  if (!plan.recompute_layers.empty()) {
    std::set<std::string> kinds;
    for (const std::string& layer : layers.names) kinds.insert(layer_glob(layer));
    for (const std::string& layer : kinds) add(layer, plan.recompute_layers, plan.recompute);
  }
  for (const Recomputed& each : plan.full) add(each.modules, each.layers, Recompute::Full);
  return rules;
}

}  // namespace

Strategy expand(const Parallelism& plan, const Graph& graph) {
  Strategy strategy;
  const FoldedMesh folded = fold(plan);
  strategy.mesh = folded.mesh;

  strategy.schedule.name = plan.schedule;
  strategy.schedule.micro_batches = plan.micro_batches;
  strategy.schedule.interleave = plan.vpp;
  for (std::int64_t layers : plan.stages) {
    Stage stage;
    stage.layers = layers;
    strategy.schedule.stages.push_back(std::move(stage));
  }
  strategy.context = plan.cp_mode;
  if (plan.sequence_parallel)
    for (const std::string& axis : folded.tensor) strategy.reduce_onto[axis] = "s";

  const auto append = [&](std::vector<Rule> rules) {
    for (Rule& rule : rules) strategy.rules.push_back(std::move(rule));
  };
  std::span<const std::string> samples = folded.data;
  if (plan.tables && !samples.empty()) {
    append(hybrid_tables(graph, samples.front(), strategy.mesh.size_of(samples.front())));
    samples = samples.subspan(1);
  }
  if (!samples.empty()) append(data_parallel(graph, samples));
  if (!plan.shares.empty())
    for (Rule& rule : strategy.rules)
      for (auto& [axis, split] : rule.inputs)
        if (split.dim >= 0) split.ratio = plan.shares;
  for (const std::string& axis : folded.context) append(context_parallel(graph, axis, plan.cp_mode));
  if (plan.h * plan.w > 1) append(spatial(graph, plan.h > 1 ? "h" : "", plan.w > 1 ? "w" : ""));
  // All-to-alls over cp hand out blocks of heads; tp has a part of each, as it has of each part of the sequence.
  const std::int64_t head_blocks = plan.cp_mode == ContextMode::AllToAll ? plan.cp : 1;
  if (!folded.tensor.empty()) append(tensor_parallel(graph, folded.tensor, folded.expert_tensor, head_blocks));
  if (!folded.experts.empty()) append(expert_parallel(graph, folded.experts));
  append(zero(plan.zero, folded.shards));
  if (folded.expert_shards != folded.shards) append(expert_zero(graph, plan.zero, folded.expert_shards));
  Rule root;
  root.match = "**";
  if (plan.recompute != Recompute::None && plan.recompute_layers.empty()) root.recompute = plan.recompute;
  for (const auto& [kind, modules] : plan.offload)
    if (modules.empty()) root.stored(kind).offload = true;
  append({std::move(root)});
  for (const auto& [kind, modules] : plan.offload) {
    if (modules.empty()) continue;
    Rule rule{.match = modules};
    rule.stored(kind).offload = true;
    append({std::move(rule)});
  }
  append(recompute_rules(plan, graph));
  // All configurations of the root are one rule.
  Rule all;
  all.match = "**";
  std::vector<Rule> others;
  for (Rule& rule : strategy.rules) {
    if (rule.match != "**") {
      others.push_back(std::move(rule));
      continue;
    }
    all.inputs.merge(rule.inputs);
    for (std::size_t kind = 0; kind < kStoredKinds; ++kind) {
      if (rule.memory[kind].over) all.memory[kind].over = rule.memory[kind].over;
      if (rule.memory[kind].offload) all.memory[kind].offload = rule.memory[kind].offload;
    }
    if (rule.recompute) all.recompute = rule.recompute;
  }
  const Rule nothing{.match = "**"};
  strategy.rules.clear();
  if (all != nothing) strategy.rules.push_back(std::move(all));
  append(std::move(others));
  return strategy;
}

}  // namespace weft
