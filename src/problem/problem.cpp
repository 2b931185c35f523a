#include "problem/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/units.h"
#include "plan/freeze.h"
#include "strategy/layers.h"

namespace weft {
namespace {

// Layers with equal operators in equal order are of one kind. Given a training graph (where parameters are frozen),
// backward and optimizer operators must be equal too.
LayerPattern pattern_of(const Graph& graph) {
  const Layers layers = find_layers(graph);
  std::vector<std::vector<std::uint32_t>> does(static_cast<std::size_t>(layers.count()));
  LayerPattern pattern;
  pattern.simple = layers.count() > 0;
  for (OpId op : graph.ops().ids()) {
    const OpId of = graph.ops()[op].forward.valid() ? graph.ops()[op].forward : op;
    if (layers.of[of] >= 0) does[static_cast<std::size_t>(layers.of[of])].push_back(graph.ops()[op].signature.index());
  }
  std::map<std::vector<std::uint32_t>, int> known;
  for (std::size_t i = 0; i < does.size(); ++i) {
    const auto [found, fresh] = known.try_emplace(does[i], pattern.kinds);
    if (fresh) ++pattern.kinds;
    pattern.kind.push_back(found->second);
    if (layers.names[i] != fmt::format("layers.{}", i)) pattern.simple = false;
  }
  return pattern;
}

// The shortest model with every kind of layer. Of several leading layers that differ from the rest, one is enough.
std::string shortest_model(const TrainingJob& job, bool frozen, LayerPattern& pattern) {
  const std::string& model = job.words.model;
  const auto first_of = [&](int kind) {
    return std::find(pattern.kind.begin(), pattern.kind.end(), kind) - pattern.kind.begin();
  };
  const std::int64_t all = pattern.kinds > 0 ? first_of(pattern.kinds - 1) + 1 : 0;
  const std::int64_t count = std::min(all, pattern.count());
  const std::string shorter = with_override(model, "layers", std::to_string(count));
  pattern.short_kind.assign(pattern.kind.begin(), pattern.kind.begin() + count);
  const auto heads = static_cast<std::int64_t>(std::count(pattern.kind.begin(), pattern.kind.end(), 0));
  if (frozen || pattern.kinds != 2 || heads < 2 || first_of(1) != heads) return shorter;
  const std::string two = with_override(with_override(model, "layers", "2"), "first_dense", "1");
  const Result<Model> built = load_model(two, {.seq = job.words.seq});
  if (!built.ok()) return shorter;
  const LayerPattern of = pattern_of(built->graph);
  if (of.kind != std::vector<int>{0, 1}) return shorter;
  pattern.short_kind = of.kind;
  return two;
}

Result<LayerPattern> layers_of(const TrainingJob& job, const Graph& graph) {
  LayerPattern pattern;
  const std::string& freeze = job.words.freeze;
  if (freeze.empty()) {
    pattern = pattern_of(graph);
  } else {
    TrainingOptions options;
    WEFT_TRY(options.frozen, frozen_parameters(graph, freeze));
    WEFT_TRY(const TrainingGraph training, make_training_graph(graph, options));
    pattern = pattern_of(training.graph);
  }
  TrainingJob shorter = job;
  shorter.words.model = shortest_model(job, !freeze.empty(), pattern);
  if (const Result<ModelInfo> info = describe_model(shorter.words.model, {.seq = job.words.seq}); info.ok())
    shorter.model = *info;
  if (!freeze.empty()) {
    shorter.words.freeze.clear();
    if (const Result<Model> built = load_model(shorter.words.model, {.seq = job.words.seq}); built.ok())
      shorter.words.freeze = freeze_in(built->graph, freeze);
  }
  pattern.short_job = std::make_shared<const TrainingJob>(std::move(shorter));
  return pattern;
}

// Of the matrix products of a layer, which `recompute=op` keeps, the one with the largest output; of two equally large,
// the one with fewer FLOPs. Found in the short model on one device, as the stack builds it.
std::vector<std::string> widest_products(const LayerPattern& pattern) {
  TrainingJob one = *pattern.short_job;
  one.words.global_batch = 1;
  one.devices = {static_cast<std::int64_t>(one.device_at(0).index())};
  const Result<Plan> plan =
      make_plan(std::make_shared<const TrainingJob>(std::move(one)), choose_strategy({.recompute = Recompute::Op}));
  if (!plan.ok()) return {};
  const Graph& graph = plan->graph();
  const Layers layers = find_layers(graph);
  struct Product {
    Bytes saved;
    Flops flops;
    OpId op;
  };
  std::vector<Product> widest(static_cast<std::size_t>(layers.count()));
  for (TensorId id : saved_tensors(plan->training(), plan->resolved.recompute)) {
    const OpId op = graph.tensors()[id].producer;
    if (!op.valid() || layers.of[op] < 0 || graph.signature(op).contractions.empty()) continue;
    const Product made{graph.bytes(id), contraction_flops(graph.signature(op)), op};
    Product& best = widest[static_cast<std::size_t>(layers.of[op])];
    if (!best.op.valid() || std::pair(best.saved, made.flops) < std::pair(made.saved, best.flops)) best = made;
  }
  std::vector<std::string> globs;
  for (std::size_t layer = 0; layer < widest.size(); ++layer) {
    if (!widest[layer].op.valid()) continue;
    // From the name in one layer, "layers.3.mlp.up", to all layers: "layers.*.mlp.up".
    const std::string& of = layers.names[layer];
    const std::string glob = of.substr(0, of.rfind('.')) + ".*" + graph.name(widest[layer].op).substr(of.size());
    if (std::find(globs.begin(), globs.end(), glob) == globs.end()) globs.push_back(glob);
  }
  return globs;
}

// A batch near `usual` that many data-parallel degrees and micro-batches divide: of those within a quarter of it, one
// with the largest divisor in common with eight micro-batches of all devices, the nearest of them.
std::int64_t divisible_batch(std::int64_t usual, std::int64_t devices) {
  const std::int64_t wanted = std::min<std::int64_t>(devices, std::int64_t{1} << 40) * 8;
  std::int64_t best = usual;
  for (std::int64_t away = 1; away <= usual / 4; ++away)
    for (const std::int64_t batch : {usual + away, usual - away})
      if (std::gcd(batch, wanted) > std::gcd(best, wanted)) best = batch;
  return best;
}

// Searches settle the batch before any strategy, so that all plans process the same samples.
std::int64_t default_batch(const TrainingJob& job, std::vector<std::string>& assumptions) {
  const ModelInfo& model = job.model;
  if (model.counts_tokens && model.seq > 0) {
    const std::int64_t usual = std::max<std::int64_t>(1, (kTokensPerStep + model.seq / 2) / model.seq);
    const std::int64_t samples = divisible_batch(usual, job.device_count());
    assumptions.push_back(fmt::format("global batch {}: about 4 M tokens{} (--global-batch)", grouped(samples),
                                      samples == usual ? "" : ", divided by the devices"));
    return samples;
  }
  const std::int64_t samples = kSamplesPerDevice * job.device_count();
  assumptions.push_back(
      fmt::format("global batch {}: {} samples per device (--global-batch)", grouped(samples), kSamplesPerDevice));
  return samples;
}

void count_devices(PlanProblem& problem) {
  const Cluster& cluster = problem.cluster();
  problem.devices = problem.job->device_count();
  std::map<NodeId, std::int64_t> of_node;
  for (std::int64_t rank = 0; rank < problem.devices; ++rank) ++of_node[cluster.node_of(problem.device_at(rank))];
  problem.per_node = of_node.at(cluster.node_of(problem.device_at(0)));
  problem.regular = cluster.homogeneous();
  for (const auto& [node, count] : of_node) problem.regular = problem.regular && count == problem.per_node;
}

void count_heads_and_experts(const Graph& graph, PlanProblem& problem) {
  std::int64_t heads = 0;
  for (OpId op : graph.ops().ids()) {
    const Signature& signature = graph.signature(op);
    const auto size = [&](std::string_view axis) {
      const int at = signature.axis_named(axis);
      return at < 0 ? std::int64_t{1} : signature.axes[static_cast<std::size_t>(at)].size;
    };
    if (signature.kind == OpKind::Attention) heads = std::gcd(heads, size("g") * size("r"));
    if (signature.kind == OpKind::ExpertLinear)
      problem.experts = problem.experts == 1 ? size("e") : std::gcd(problem.experts, size("e"));
  }
  // Attention in separate operators has heads too; the compiler rejects degrees that do not divide them.
  if (heads == 0 && problem.model().kind == ModelKind::Language) heads = problem.per_node;
  problem.heads = std::max<std::int64_t>(1, heads);
  problem.splits_tensors = heads > 0;
}

}  // namespace

Bytes PlanProblem::memory_budget() const {
  Bytes least = job->memory_budget_of(device_at(0));
  for (std::int64_t rank = 1; rank < devices; ++rank) least = std::min(least, job->memory_budget_of(device_at(rank)));
  return least;
}

Result<PlanProblem> pose(const PlanRequest& request, const Calibration& calibration) {
  WEFT_TRY(TrainingJob job, settle(request, calibration));
  return pose(std::move(job));
}

Result<PlanProblem> pose(TrainingJob job) {
  constexpr std::int64_t kMostSamples = std::int64_t{1} << 24;
  std::optional<std::int64_t>& batch = job.words.global_batch;
  if (batch && (*batch < 1 || *batch > kMostSamples))
    return error("--global-batch {}: from 1 to {} samples per step", *batch, grouped(kMostSamples));
  PlanProblem problem;
  WEFT_TRY(const Model model, load_model(job.words.model, {.seq = job.words.seq}));
  job.model = model.info;
  if (!batch) batch = default_batch(job, problem.assumptions);
  problem.global_batch = *batch;
  problem.job = std::make_shared<const TrainingJob>(std::move(job));
  count_devices(problem);
  WEFT_TRY(problem.layers, layers_of(*problem.job, model.graph));
  if (model.info.kind == ModelKind::Imported || model.info.kind == ModelKind::Recurrent) problem.layers.simple = false;
  if (problem.layers.simple) problem.layers.widest = widest_products(problem.layers);
  problem.parameters = model.graph.parameter_count();
  count_heads_and_experts(model.graph, problem);
  problem.optimizer = optimizer_of(*problem.job, model.info, model.graph);
  return problem;
}

}  // namespace weft
