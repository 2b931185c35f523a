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

constexpr std::int64_t kTokensPerStep = std::int64_t{1} << 22;
constexpr std::int64_t kSamplesPerDevice = 32;

// Layers with equal operators in equal order are of one kind; where parameters are frozen, also backward and in the
// step (a training graph).
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

// The shortest model with every kind of layer. Where some first layers differ from the rest, one of them is enough.
void shorten(const std::string& model, const ModelOptions& shape, bool frozen, LayerPattern& pattern) {
  const auto first_of = [&](int kind) {
    return std::find(pattern.kind.begin(), pattern.kind.end(), kind) - pattern.kind.begin();
  };
  const std::int64_t all = pattern.kinds > 0 ? first_of(pattern.kinds - 1) + 1 : 0;
  const std::int64_t count = std::min(all, pattern.count());
  pattern.short_model = with_layers(model, count);
  pattern.short_kind.assign(pattern.kind.begin(), pattern.kind.begin() + count);
  if (frozen) return;
  const auto heads = static_cast<std::int64_t>(std::count(pattern.kind.begin(), pattern.kind.end(), 0));
  if (pattern.kinds != 2 || heads < 2 || first_of(1) != heads) return;
  const std::string shorter = with_layers(model, 2) + ",first_dense=1";
  const Result<Model> built = load_model(shorter, shape);
  if (!built.ok()) return;
  if (const LayerPattern of = pattern_of(built->graph); of.kind == std::vector<int>{0, 1}) {
    pattern.short_model = shorter;
    pattern.short_kind = of.kind;
  }
}

Result<LayerPattern> layers_of(const PlanRequest& request, const ModelOptions& shape, const Graph& graph) {
  if (request.freeze.empty()) {
    LayerPattern pattern = pattern_of(graph);
    shorten(request.model, shape, false, pattern);
    return pattern;
  }
  TrainingOptions options;
  WEFT_TRY(options.frozen, frozen_parameters(graph, request.freeze));
  WEFT_TRY(const TrainingGraph training, make_training_graph(graph, options));
  LayerPattern pattern = pattern_of(training.graph);
  shorten(request.model, shape, true, pattern);
  if (const Result<Model> built = load_model(pattern.short_model, shape); built.ok())
    pattern.short_freeze = freeze_in(built->graph, request.freeze);
  return pattern;
}

// Of the products of a layer, which `recompute=op` keeps, the one whose output takes most memory; of two alike, the one
// that takes fewer operations to make again. Looked for in the short model, on one device, as the stack builds it.
std::vector<std::string> widest_products(const PlanProblem& problem) {
  PlanRequest request = problem.request;
  request.model = problem.layers.short_model;
  request.freeze = problem.layers.short_freeze;
  request.strategy = "tp=1,pp=1,dp=1,mbs=1,recompute=op";
  request.global_batch = 1;
  request.devices = {static_cast<std::int64_t>(problem.device_at(0).index())};
  const Result<Plan> plan = make_plan(request);
  if (!plan.ok()) return {};
  const Graph& graph = plan->training.graph;
  const Layers layers = find_layers(graph);
  struct Product {
    Bytes saved;
    Flops flops;
    OpId op;
  };
  std::vector<Product> widest(static_cast<std::size_t>(layers.count()));
  for (TensorId id : saved_tensors(plan->training, plan->resolved.recompute)) {
    const OpId op = graph.tensors()[id].producer;
    if (!op.valid() || layers.of[op] < 0 || graph.signature(op).contractions.empty()) continue;
    const Product made{graph.bytes(id), contraction_flops(graph.signature(op)), op};
    Product& best = widest[static_cast<std::size_t>(layers.of[op])];
    if (!best.op.valid() || std::pair(best.saved, made.flops) < std::pair(made.saved, best.flops)) best = made;
  }
  std::vector<std::string> globs;
  for (std::size_t layer = 0; layer < widest.size(); ++layer) {
    if (!widest[layer].op.valid()) continue;
    // "layers.3.mlp.up" names one; every layer has it.
    const std::string& of = layers.names[layer];
    const std::string glob = of.substr(0, of.rfind('.')) + ".*" + graph.name(widest[layer].op).substr(of.size());
    if (std::find(globs.begin(), globs.end(), glob) == globs.end()) globs.push_back(glob);
  }
  return globs;
}

std::int64_t settle_batch(const PlanRequest& request, const ModelInfo& model, std::int64_t devices,
                          std::vector<std::string>& told) {
  if (request.global_batch) return *request.global_batch;
  if (model.counts_tokens && model.seq > 0) {
    const std::int64_t samples = std::max<std::int64_t>(1, (kTokensPerStep + model.seq / 2) / model.seq);
    told.push_back(fmt::format("global batch {}: about 4 M tokens (--global-batch)", grouped(samples)));
    return samples;
  }
  told.push_back(fmt::format("global batch {}: {} samples per device (--global-batch)",
                             grouped(kSamplesPerDevice * devices), kSamplesPerDevice));
  return kSamplesPerDevice * devices;
}

Status count_devices(PlanProblem& problem) {
  const Cluster& cluster = problem.cluster;
  WEFT_TRY(problem.request.devices, chosen_devices(problem.request, cluster));
  const std::vector<std::int64_t>& chosen = problem.request.devices;
  problem.devices = chosen.empty() ? cluster.device_count() : static_cast<std::int64_t>(chosen.size());
  std::map<NodeId, std::int64_t> of_node;
  for (std::int64_t rank = 0; rank < problem.devices; ++rank) ++of_node[cluster.node_of(problem.device_at(rank))];
  problem.per_node = of_node.at(cluster.node_of(problem.device_at(0)));
  problem.regular = cluster.homogeneous();
  for (const auto& [node, count] : of_node) problem.regular = problem.regular && count == problem.per_node;
  return Ok{};
}

}  // namespace

std::string with_layers(const std::string& model, std::int64_t layers) {
  const std::size_t suffix = std::min(model.find(".json"), model.size());
  const bool has_any = model.find(':', suffix == model.size() ? 0 : suffix) != std::string::npos;
  return fmt::format("{}{}layers={}", model, has_any ? "," : ":", layers);
}

Result<PlanProblem> pose(const PlanRequest& request) {
  PlanProblem problem;
  problem.request = request;
  problem.request.strategy.clear();
  problem.request.tree.clear();
  problem.request.micro_batch.reset();
  WEFT_TRY(problem.cluster, parse_cluster(request.cluster));
  ModelOptions shape{.seq = request.seq};
  WEFT_TRY(problem.model, describe_model(request.model, shape));
  const std::string stack(request.stack.empty() ? default_stack(problem.model.kind) : request.stack);
  Result<SoftwareStack> found = find_stack(stack);
  if (!found.ok()) return found.error().at("--stack");
  problem.stack = *found;
  std::vector<std::string> ignored;  // every plan tells it
  WEFT_TRY(problem.precision, choose_precision(request.dtype, problem.stack, ignored));
  if (request.global_batch && (*request.global_batch < 1 || *request.global_batch > (std::int64_t{1} << 24)))
    return error("--global-batch {}: from 1 to {} samples per step", *request.global_batch,
                 grouped(std::int64_t{1} << 24));
  WEFT_TRY_OK(count_devices(problem));
  WEFT_TRY(const Model model, load_model(request.model, shape));
  problem.model = model.info;
  problem.global_batch = settle_batch(request, model.info, problem.devices, problem.assumptions);
  problem.request.global_batch = problem.global_batch;
  WEFT_TRY(problem.layers, layers_of(request, shape, model.graph));
  if (model.info.kind == ModelKind::Imported || model.info.kind == ModelKind::Recurrent) problem.layers.simple = false;
  if (problem.layers.simple) problem.layers.widest = widest_products(problem);
  problem.parameters = model.graph.parameter_count();
  std::int64_t heads = 0;
  for (OpId op : model.graph.ops().ids()) {
    const Signature& signature = model.graph.signature(op);
    const auto size = [&](std::string_view axis) {
      const int at = signature.axis_named(axis);
      return at < 0 ? std::int64_t{1} : signature.axes[static_cast<std::size_t>(at)].size;
    };
    if (signature.kind == OpKind::Attention) heads = std::gcd(heads, size("g") * size("r"));
    if (signature.kind == OpKind::ExpertLinear)
      problem.experts = problem.experts == 1 ? size("e") : std::gcd(problem.experts, size("e"));
  }
  // Attention in separate operators has heads too; the compiler says which degrees divide them.
  if (heads == 0 && model.info.kind == ModelKind::Language) heads = problem.per_node;
  problem.heads = std::max<std::int64_t>(1, heads);
  problem.splits_tensors = heads > 0;
  return problem;
}

}  // namespace weft
