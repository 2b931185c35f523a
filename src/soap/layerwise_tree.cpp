#include "soap/layerwise_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "strategy/presets.h"

namespace weft {
namespace {

// 1000 s: more than any plan takes, and small enough to be added for every layer and micro-batch without overflow.
constexpr Picoseconds kForbidden = Picoseconds{1'000} * 1'000'000'000'000;

bool of_one_mesh(const LayerOption& a, const LayerOption& b) { return a.tp == b.tp && a.dp == b.dp; }

}  // namespace

LayerTable expressible_options(const LayerTable& table, int zero) {
  LayerTable result;
  result.layers = table.layers;
  std::vector<std::size_t> kept;
  for (std::size_t o = 0; o < table.options.size(); ++o)
    if (table.options[o].zero == (table.options[o].dp > 1 ? zero : 0)) kept.push_back(o);
  for (std::size_t o : kept) {
    result.options.push_back(table.options[o]);
    result.layer.push_back(table.layer[o]);
    result.first.push_back(table.first[o]);
    result.last.push_back(table.last[o]);
    std::vector<Picoseconds>& change = result.change.emplace_back();
    for (std::size_t p : kept) change.push_back(of_one_mesh(table.options[o], table.options[p]) ? 0 : kForbidden);
  }
  return result;
}

std::optional<ExpressiblePlan> best_expressible(const LayerwiseProblem& problem) {
  std::optional<ExpressiblePlan> best;
  for (int zero : {0, 1, 3}) {
    std::map<std::int64_t, LayerTable> tables;
    for (std::int64_t micro_batches : problem.micro_batches)
      if (const LayerTable* table = problem.table_of(micro_batches))
        tables.emplace(micro_batches, expressible_options(*table, zero));
    LayerwiseProblem expressible = problem;
    expressible.table_of = [&](std::int64_t micro_batches) {
      const auto found = tables.find(micro_batches);
      return found == tables.end() ? nullptr : &found->second;
    };
    std::optional<LayerwisePipeline> found = best_layerwise(expressible);
    if (found && (!best || found->time < best->pipeline.time))
      best = ExpressiblePlan{std::move(*found), std::move(tables)};
  }
  return best;
}

Result<Strategy> to_tree(const LayerwisePipeline& pipeline, const LayerTable& table, const Graph& graph) {
  Strategy tree;
  std::optional<int> stage_of_zero;
  std::int64_t most_tp = 1, most_dp = 1, first_device = 0;
  std::size_t layer = 0;
  std::vector<Rule> recomputed;
  for (const LayerwisePlan& plan : pipeline.stages) {
    const LayerOption& like = table.options[plan.option.front()];
    for (std::size_t option : plan.option) {
      const LayerOption& own = table.options[option];
      if (!of_one_mesh(own, like))
        return error("layer {}: [{}] in a stage of [{}]; a stage of a strategy tree has one mesh", layer, print(own),
                     print(like));
      if (own.dp > 1 && stage_of_zero.value_or(own.zero) != own.zero)
        return error("layer {}: zero={}, others zero={}; a strategy tree has one for all", layer, own.zero,
                     *stage_of_zero);
      if (own.dp > 1) stage_of_zero = own.zero;
      if (own.recompute) recomputed.push_back({.match = fmt::format("layers.{}", layer), .recompute = Recompute::Full});
      ++layer;
    }
    Stage& stage = tree.schedule.stages.emplace_back();
    stage.layers = static_cast<std::int64_t>(plan.option.size());
    stage.mesh.emplace();
    stage.mesh->axes = {{"dp", like.dp}, {"tp", like.tp}};
    for (int i = 0; i < like.devices(); ++i) stage.mesh->devices.push_back(first_device++);
    most_tp = std::max<std::int64_t>(most_tp, like.tp);
    most_dp = std::max<std::int64_t>(most_dp, like.dp);
  }
  const bool piped = pipeline.stages.size() > 1;
  if (piped) {  // every stage has a mesh of its own
    tree.mesh.axes = {{"pp", static_cast<int>(pipeline.stages.size())}, {"dp", 1}, {"tp", 1}};
  } else {
    tree.mesh.axes = tree.schedule.stages.front().mesh->axes;
    tree.schedule.stages.clear();
  }
  tree.schedule.name = "1f1b";
  tree.schedule.micro_batches = pipeline.micro_batches;
  if (most_tp > 1) tree.reduce_onto["tp"] = "s";
  const std::vector<std::string> data = {"dp"};
  const auto append = [&](std::vector<Rule> rules) {
    for (Rule& rule : rules) tree.rules.push_back(std::move(rule));
  };
  if (most_dp > 1) append(data_parallel(graph, data));
  if (most_tp > 1) append(tensor_parallel(graph, "tp"));
  if (most_dp > 1) append(zero(stage_of_zero.value_or(0), data));
  append(std::move(recomputed));
  return tree;
}

}  // namespace weft
