// Plans of several kinds of devices drawn at random, and whether they train as one device does: loss, gradients and
// updated weights.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "base/random.h"
#include "compile/from_strategy.h"
#include "mixed/replicas.h"
#include "mixed/stage_tree.h"
#include "models/models.h"
#include "reference/one_device.h"
#include "sharded_plan.h"
#include "strategy/presets.h"

namespace weft {

inline constexpr std::int64_t kSequence = 4;

struct PlayedMixed {
  std::string words, problem;
  std::set<std::string> features;
};

// A model of so many layers. (Experts are not distributed in these plans.)
inline std::string random_model(std::int64_t layers, Rng& rng, std::set<std::string>& features) {
  switch (rng.below(4)) {
    case 3:
      features.insert("experts");
      return fmt::format(
          "mixtral-8x7b:layers={},hidden=8,heads=4,kv_heads=4,ffn=4,vocab=12,experts=4,top_k=2,capacity_factor=2",
          layers);
    case 0:
      features.insert("tied embedding");
      return fmt::format("gpt2-124m:layers={},hidden=8,heads=4,ffn=8,vocab=12,dropout=0.1", layers);
    case 1:
      return fmt::format("llama3-8b:layers={},hidden=8,heads=4,kv_heads=4,ffn=8,vocab=12", layers);
    default:
      features.insert("tied embedding");
      return fmt::format("llama3-8b:layers={},hidden=8,heads=4,kv_heads=4,ffn=12,vocab=16,tied=1", layers);
  }
}

// Devices 0 … 31 in kinds of random numbers.
inline std::vector<DeviceKind> random_kinds(Rng& rng) {
  std::vector<DeviceKind> kinds(static_cast<std::size_t>(rng.between(2, 3)));
  for (std::size_t k = 0; k < kinds.size(); ++k) kinds[k].name = fmt::format("kind{}", k);
  for (std::int64_t device = 0; device < 96; ++device)
    kinds[static_cast<std::size_t>(device / 32) % kinds.size()].devices.push_back(device);
  for (DeviceKind& kind : kinds) kind.per_node = 4;
  return kinds;
}

// ZeRO of another stage than the tree's own.
inline void set_zero(Strategy& tree, int stage) {
  const std::vector<std::string> data = {"dp"};
  for (Rule& rule : tree.rules)
    for (Storage& storage : rule.memory) storage.over.reset();
  for (Rule& rule : zero(stage, data)) tree.rules.push_back(std::move(rule));
}

inline PlayedMixed play_tree(std::string words, const Strategy& tree, const std::string& model, std::int64_t samples,
                             std::set<std::string> features, Rng& rng) {
  PlayedMixed played{std::move(words), "", std::move(features)};
  const auto fails = [&](const std::string& problem) {
    played.problem = played.words + ": " + problem;
    return played;
  };
  // Every part of the sequence routes its own tokens, as plans build models with experts.
  const std::vector<std::int64_t> cuts = sequence_cuts(tree);
  const bool routed = played.features.contains("experts") && !cuts.empty();
  const std::string built = routed ? fmt::format("{},groups={}", model, fmt::join(cuts, "x")) : model;
  const Result<Graph> graph = build_model(built, {.batch = samples, .seq = kSequence, .dtype = DType::F32});
  if (!graph.ok()) return fails(graph.error().message);
  const Result<TrainingGraph> training = make_training_graph(*graph, {.master_weights = false});
  if (!training.ok()) return fails(training.error().message);
  const Cluster cluster = parse_cluster("p100x4:24").value();
  const Result<ResolvedStrategy> resolved = resolve(tree, *training, cluster);
  if (!resolved.ok()) return fails(resolved.error().message);
  const PricePerCallAndByte price(static_cast<double>(rng.below(400)), 1);
  CompileOptions options{.gradients = {.overlap = rng.below(4) != 0, .bucket = Bytes{200}},
                         .tensor_overlap = rng.below(3) != 0,
                         .prices = rng.below(2) == 0 ? &price : nullptr};
  if (rng.below(2) == 0) options.types.sent_gradients = DType::BF16;
  if (rng.below(3) == 0) options.transfers.node.assign(96, 0), played.features.insert("in parts");
  const Result<CompiledStrategy> compiled = compile_strategy(*training, *resolved, options);
  if (!compiled.ok()) return fails(compiled.error().message);
  const std::string problem = reference::differs_from_one_device(*training, compiled->program, compiled->schedule);
  return problem.empty() ? played : fails(problem);
}

// Stages that have together so many layers, on devices that are `left` of each kind.
inline MixedPipeline random_pipeline(std::int64_t stages, std::int64_t layers, const std::vector<DeviceKind>& kinds,
                                     std::int64_t most_devices, std::vector<std::int64_t>& left, Rng& rng) {
  MixedPipeline pipeline;
  pipeline.micro_batches = rng.between(1, 4);
  std::int64_t placed = 0;
  for (std::int64_t s = 0; s < stages; ++s) {
    MixedPipeline::Stage stage;
    stage.kind = rng.below(kinds.size());
    stage.first = placed;
    const std::int64_t most = layers - placed - (stages - 1 - s);
    stage.layers = s + 1 == stages ? most : rng.between(1, std::min<std::int64_t>(2, most));
    placed += stage.layers;
    do {
      stage.option.tp = std::int32_t{1} << rng.below(3);
      stage.option.dp = std::int32_t{1} << rng.below(3);
    } while (stage.devices() > most_devices || stage.devices() > left[stage.kind]);
    left[stage.kind] -= stage.devices();
    const PlanRecompute again[] = {PlanRecompute::None, PlanRecompute::Selective, PlanRecompute::Full,
                                   PlanRecompute::Op, PlanRecompute{4}};
    stage.option.recompute = again[rng.below(5)];
    pipeline.stages.push_back(stage);
  }
  return pipeline;
}

inline LayerPattern pattern_of(const std::string& model) {
  LayerPattern pattern;
  pattern.recompute.sets.push_back({Recompute::Op,
                                    {model.starts_with("mixtral") ? "layers.*.moe.experts.gate_up"
                                     : model.starts_with("gpt2")  ? "layers.*.mlp.up"
                                                                  : "layers.*.mlp.gate_up"}});
  return pattern;
}

inline std::vector<std::int64_t> counts_of(const std::vector<DeviceKind>& kinds) {
  std::vector<std::int64_t> counts;
  for (const DeviceKind& kind : kinds) counts.push_back(kind.count());
  return counts;
}

// Plays so many, scaled by WEFT_RANDOM_PLANS / 2,100 (sanitizer builds run fewer), and expects every one of so many
// features often. Prints how often features come, and pairs of them.
inline void play_all(int all, std::size_t features, const std::function<PlayedMixed(int, Rng&)>& play) {
  const char* const wanted = std::getenv("WEFT_RANDOM_PLANS");
  const int plans = wanted ? all * std::atoi(wanted) / 2100 : all;
  std::vector<PlayedMixed> played(static_cast<std::size_t>(plans));
  std::atomic<int> next = 0;
  const auto work = [&] {
    for (int i = next++; i < plans; i = next++) {
      Rng rng = Rng(2026).split(static_cast<std::uint64_t>(i));
      played[static_cast<std::size_t>(i)] = play(i, rng);
    }
  };
  std::thread other(work);
  work();
  other.join();
  int mismatches = 0;
  std::map<std::string, int> counts;
  std::map<std::pair<std::string, std::string>, int> pairs;
  for (const PlayedMixed& each : played) {
    EXPECT_EQ(each.problem, "");
    mismatches += each.problem.empty() ? 0 : 1;
    for (auto a = each.features.begin(); a != each.features.end(); ++a) {
      ++counts[*a];
      for (auto b = std::next(a); b != each.features.end(); ++b) ++pairs[{*a, *b}];
    }
  }
  std::string text;
  for (const auto& [feature, times] : counts) {
    text += fmt::format(", {} {}", feature, times);
    if (plans >= all) {
      EXPECT_GE(times, 25) << feature;
    }
  }
  fmt::print("{} mixed plans played, {} mismatches{}\n", plans, mismatches, text);
  for (const auto& [pair, times] : pairs) fmt::print("  {} × {}: {}\n", pair.first, pair.second, times);
  if (plans >= all) {
    EXPECT_EQ(counts.size(), features);
  }
}

}  // namespace weft
