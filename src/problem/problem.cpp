#include "problem/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/units.h"
#include "cost/analytic.h"
#include "plan/freeze.h"
#include "problem/balance.h"
#include "strategy/layers.h"
#include "strategy/stages.h"

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
  std::set<std::int64_t> readers;
  for (OpId op : graph.ops().ids())
    for (TensorId input : graph.inputs(op))
      if (const OpId from = graph.tensors()[input].producer;
          from.valid() && layers.of[op] >= 0 && layers.of[from] >= 0 && layers.of[op] != layers.of[from])
        readers.insert(layers.of[op]);
  pattern.chained = 2 * static_cast<std::int64_t>(readers.size()) >= layers.count() && layers.count() > 1;
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
std::string shortest_model(const TrainingJob& job, bool frozen, const LayerPattern& pattern) {
  const std::string& model = job.words.model;
  const auto first_of = [&](int kind) {
    return std::find(pattern.kind.begin(), pattern.kind.end(), kind) - pattern.kind.begin();
  };
  const std::int64_t all = pattern.kinds > 0 ? first_of(pattern.kinds - 1) + 1 : 0;
  const std::int64_t count = std::min(all, pattern.count());
  const std::string shorter = with_override(model, "layers", std::to_string(count));
  const auto heads = static_cast<std::int64_t>(std::count(pattern.kind.begin(), pattern.kind.end(), 0));
  if (frozen || pattern.kinds != 2 || heads < 2 || first_of(1) != heads) return shorter;
  const std::string two = with_override(with_override(model, "layers", "2"), "first_dense", "1");
  const Result<Model> built = load_model(two, {.seq = job.words.seq});
  if (!built.ok()) return shorter;
  const LayerPattern of = pattern_of(built->graph);
  if (of.kind != std::vector<int>{0, 1}) return shorter;
  return two;
}

// The graph that sections are found in: with frozen parameters, the training graph.
Result<Graph> graph_with_frozen(const TrainingJob& job, const Graph& graph) {
  TrainingOptions options;
  WEFT_TRY(options.frozen, frozen_parameters(graph, job.words.freeze));
  WEFT_TRY(TrainingGraph training, make_training_graph(graph, options));
  return std::move(training.graph);
}

// Models that may be shorter ones of the same kind, shortest first.
std::vector<std::string> shorter_models(const TrainingJob& job, const LayerPattern& pattern) {
  constexpr int kMostLayers = 4;  // of every stack: longer ones would be short no more
  std::vector<std::string> models;
  if (pattern.simple) models.push_back(shortest_model(job, !job.words.freeze.empty(), pattern));
  // From two layers on: the gradient of what all layers read, such as a position bias, is a sum over layers.
  for (int layers = 2; !pattern.simple && layers <= kMostLayers && layers < pattern.count(); ++layers)
    models.push_back(with_override(job.words.model, "layers", std::to_string(layers)));
  return models;
}

// The same job with another model; its sections, if it has every kind of the pattern's sections and no other.
std::optional<TrainingJob> shortened(const TrainingJob& job, const std::string& model, LayerPattern& pattern,
                                     SectionKinds& kinds) {
  TrainingJob shorter = job;
  shorter.words.model = model;
  const Result<Model> built = load_model(model, {.seq = job.words.seq});
  if (!built.ok()) return std::nullopt;
  shorter.model = built->info;
  Sections sections;
  if (job.words.freeze.empty()) {
    sections = find_sections(built->graph, kinds);
  } else {
    shorter.words.freeze = freeze_in(built->graph, job.words.freeze);
    const Result<Graph> graph = graph_with_frozen(shorter, built->graph);
    if (!graph.ok()) return std::nullopt;
    sections = find_sections(*graph, kinds);
  }
  std::vector<char> seen(static_cast<std::size_t>(kinds.count()), 0);
  for (const Section& section : sections.list) seen[static_cast<std::size_t>(section.kind)] = 1;
  for (const Section& section : pattern.sections)
    if (!seen[static_cast<std::size_t>(section.kind)]) return std::nullopt;
  if (kinds.count() != pattern.section_kinds) return std::nullopt;
  pattern.short_sections = std::move(sections.list);
  return shorter;
}

Result<LayerPattern> layers_of(const TrainingJob& job, const Model& model) {
  std::optional<Graph> frozen;
  if (!job.words.freeze.empty()) {
    WEFT_TRY(frozen, graph_with_frozen(job, model.graph));
  }
  const Graph& graph = frozen ? *frozen : model.graph;
  LayerPattern pattern = pattern_of(graph);
  if (model.info.kind == ModelKind::Imported || model.info.kind == ModelKind::Recurrent) pattern.simple = false;
  SectionKinds kinds;
  Sections sections = find_sections(graph, kinds);
  pattern.sections = std::move(sections.list);
  pattern.apart = sections.apart;
  pattern.section_kinds = kinds.count();
  std::optional<TrainingJob> shorter;
  for (const std::string& each : shorter_models(job, pattern)) {
    SectionKinds tried = kinds;  // a model that has other kinds leaves no trace
    if (shorter = shortened(job, each, pattern, tried); shorter) break;
  }
  if (!shorter) {
    shorter = job;
    shorter->model = model.info;
    pattern.short_sections = pattern.sections;
  }
  pattern.short_kind.clear();
  for (const Section& section : pattern.short_sections) {
    if (!section.is_layer) continue;
    const auto alike = std::find_if(pattern.sections.begin(), pattern.sections.end(),
                                    [&](const Section& each) { return each.kind == section.kind; });
    pattern.short_kind.push_back(pattern.kind[static_cast<std::size_t>(alike->layer)]);
  }
  pattern.short_job = std::make_shared<const TrainingJob>(std::move(*shorter));
  return pattern;
}

// The short model on one device, as the stack builds it; none where it does not compile.
std::optional<Plan> on_one_device(const LayerPattern& pattern) {
  TrainingJob one = *pattern.short_job;
  one.words.global_batch = 1;
  one.devices = {static_cast<std::int64_t>(one.device_at(0).index())};
  Result<Plan> plan = make_plan(std::make_shared<const TrainingJob>(std::move(one)), choose_strategy(Parallelism{}));
  return plan.ok() ? std::optional(std::move(plan).value()) : std::nullopt;
}

// Seconds of every section of the model, forward and backward, by those of its kind in the short one.
StageLoads loads_of(const LayerPattern& pattern, const Plan& shortened) {
  const Graph& graph = shortened.graph();
  SectionKinds kinds;
  const Sections sections = find_sections(graph, kinds);
  if (sections.list.size() != pattern.short_sections.size()) return {};
  const AnalyticCost cost(shortened.stack(), shortened.job->tuning);
  const DeviceSpec& device = shortened.cluster().spec(shortened.job->device_at(0));
  std::vector<double> seconds(sections.list.size(), 0), of_kind(static_cast<std::size_t>(pattern.section_kinds), 0);
  for (OpId op : graph.ops().ids()) {
    if (sections.of[op] < 0 || graph.ops()[op].phase == Phase::Step) continue;
    const ComputeQuery query{.signature = &graph.signature(op), .device = &device};
    seconds[static_cast<std::size_t>(sections.of[op])] += seconds_of(cost.compute(query).time);
  }
  for (std::size_t i = 0; i < seconds.size(); ++i)
    of_kind[static_cast<std::size_t>(pattern.short_sections[i].kind)] = seconds[i];
  StageLoads loads;
  loads.layers.resize(static_cast<std::size_t>(pattern.count()), 0);
  for (const Section& section : pattern.sections) {
    double& held = section.layer < 0                  ? loads.first
                   : section.layer >= pattern.count() ? loads.last
                                                      : loads.layers[static_cast<std::size_t>(section.layer)];
    held += of_kind[static_cast<std::size_t>(section.kind)];
  }
  return loads;
}

// The menu of the short model.
RecomputeMenu menu_of(const PlanProblem& problem, const std::optional<Plan>& plan) {
  const LayerPattern& pattern = problem.layers;
  RecomputeMenu named;
  for (const Recompute base : {Recompute::None, Recompute::Selective, Recompute::Op, Recompute::Full}) {
    if (base != Recompute::None && pattern.count() == 0) continue;     // layers are what is recomputed …
    if (base == Recompute::Selective && problem.heads <= 1) continue;  // … and attention
    named.front.push_back(static_cast<std::uint8_t>(base));
  }
  if (!problem.model().counts_tokens && problem.heads <= 1) return named;
  if (!plan || find_layers(plan->graph()).count() != static_cast<std::int64_t>(pattern.short_kind.size())) return named;
  std::vector<double> times;
  for (const int kind : pattern.short_kind)
    times.push_back(static_cast<double>(std::count(pattern.kind.begin(), pattern.kind.end(), kind)) /
                    static_cast<double>(std::count(pattern.short_kind.begin(), pattern.short_kind.end(), kind)));
  std::vector<DeviceId> experts;
  for (std::int64_t rank = 0; rank < std::gcd(problem.experts, problem.per_node); ++rank)
    experts.push_back(problem.device_at(rank));
  return recompute_menu(*plan, times, experts);
}

// Whether the devices that data parallelism over such a batch leaves to a replica can be tensor- and context-parallel
// groups (powers of two, parts of at least 1,024 tokens) of the stages of a pipeline.
bool divides_devices(std::int64_t batch, const TrainingJob& job) {
  constexpr std::int64_t kNode = 8, kTokens = 1024;
  std::int64_t stages = job.device_count() / std::gcd(batch, job.device_count());
  for (std::int64_t group = 1; group < kNode * job.model.seq / kTokens && stages % 2 == 0; group *= 2) stages /= 2;
  return stages <= std::max<std::int64_t>(1, job.model.layers);
}

// A batch near `usual` that many data-parallel degrees and micro-batches divide: of those within a quarter of it that
// leave plans for all devices, one with the largest divisor in common with eight micro-batches of all devices, the nearest
// of them.
std::int64_t divisible_batch(std::int64_t usual, const TrainingJob& job) {
  const std::int64_t wanted = std::min<std::int64_t>(job.device_count(), std::int64_t{1} << 40) * 8;
  const auto worth = [&](std::int64_t batch) {
    return std::pair(divides_devices(batch, job), std::gcd(batch, wanted));
  };
  std::int64_t best = usual;
  for (std::int64_t away = 1; away <= usual / 4; ++away)
    for (const std::int64_t batch : {usual + away, usual - away})
      if (worth(batch) > worth(best)) best = batch;
  return best;
}

// Searches settle the batch before any strategy, so that all plans process the same samples.
std::int64_t default_batch(const TrainingJob& job, std::vector<std::string>& assumptions) {
  const ModelInfo& model = job.model;
  if (model.counts_tokens && model.seq > 0) {
    const std::int64_t usual = std::max<std::int64_t>(1, (kTokensPerStep + model.seq / 2) / model.seq);
    const std::int64_t samples = divisible_batch(usual, job);
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
  const DeviceSpec& first = cluster.spec(problem.device_at(0));
  const NodeType& type = cluster.type_of(cluster.node_of(problem.device_at(0)));
  problem.regular = true;
  for (std::int64_t rank = 1; rank < problem.devices; ++rank) {
    const DeviceSpec& own = cluster.spec(problem.device_at(rank));
    problem.regular = problem.regular && (&own == &first || own == first);
  }
  for (const auto& [node, count] : of_node) {
    const NodeType& own = cluster.type_of(node);
    problem.regular = problem.regular && count == problem.per_node && (&own == &type || own == type);
  }
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
  WEFT_TRY(problem.layers, layers_of(*problem.job, model));
  problem.parameters = model.graph.parameter_count();
  problem.operators = static_cast<std::int64_t>(model.graph.ops().size());
  count_heads_and_experts(model.graph, problem);
  if (problem.layers.count() > 0) {
    const std::optional<Plan> plan = on_one_device(problem.layers);
    problem.layers.recompute = menu_of(problem, plan);
    const StageLoads loads = plan && problem.layers.apart ? loads_of(problem.layers, *plan) : StageLoads{};
    const auto most = static_cast<std::int64_t>(loads.layers.size());
    constexpr double kWorth = 0.995;  // of the fullest of even stages
    problem.layers.balanced.resize(1);
    for (std::int64_t stages = 1; stages <= std::min(most, problem.devices); ++stages) {
      std::vector<std::int64_t>& balanced = problem.layers.balanced.emplace_back(balanced_stages(loads, stages));
      if (most % stages == 0 &&
          fullest_stage(loads, balanced) > kWorth * fullest_stage(loads, even_stages(most, stages)))
        balanced.clear();
    }
  } else {
    problem.layers.recompute = menu_of(problem, std::nullopt);
  }
  problem.optimizer = optimizer_of(*problem.job, model.info, model.graph);
  return problem;
}

PlanProblem on_devices(const PlanProblem& problem, std::vector<std::int64_t> devices) {
  PlanProblem part = problem;
  TrainingJob job = *problem.job;
  job.devices = std::move(devices);
  part.job = std::make_shared<const TrainingJob>(std::move(job));
  count_devices(part);
  return part;
}

}  // namespace weft
