#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/units.h"
#include "plan/freeze.h"
#include "strategy/violations.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

// The spec with one more override; the last of two that say the same wins.
std::string with_override(const std::string& spec, const std::string& item) {
  const std::size_t suffix = std::min(spec.find(".json"), spec.size());
  const bool has_any = spec.find(':', suffix == spec.size() ? 0 : suffix) != std::string::npos;
  return spec + (has_any ? "," : ":") + item;
}

bool has_override(const std::string& spec, std::string_view key) {
  return spec.find(fmt::format(":{}=", key)) != std::string::npos ||
         spec.find(fmt::format(",{}=", key)) != std::string::npos;
}

bool has_operator(const Graph& graph, OpKind kind) {
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == kind) return true;
  return false;
}

// Every attention is one operator, and tokens see those before them only.
bool is_causal(const Graph& graph) {
  bool causal = false;
  for (OpId op : graph.ops().ids()) {
    if (graph.kind(op) != OpKind::Attention) continue;
    causal = graph.signature(op).attrs.integer("causal", 0) != 0;
    if (!causal) return false;
  }
  return causal;
}

// What the loss chooses among: the classes that the cross-entropy's logits have. The most, where there are several
// losses (BERT's next sentence is one of two).
std::int64_t vocabulary_of(const Graph& graph) {
  std::int64_t classes = 0;
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == OpKind::CrossEntropy)
      classes = std::max(classes, graph.tensors()[graph.inputs(op)[0]].type.shape.back());
  return classes;
}

// The line that ends a violation's place, "plan.yaml:12"; 0 where there is none.
std::int64_t line_of(const Violation& violation) {
  const Result<std::int64_t> line = parse_integer(violation.place.substr(violation.place.rfind(':') + 1), "line");
  return line.ok() ? *line : 0;
}

class PlanMaker {
 public:
  explicit PlanMaker(const PlanRequest& request) : request_(request) {}

  Result<Plan> make() {
    WEFT_TRY_OK(check_numbers());
    WEFT_TRY(Cluster cluster, parse_cluster(request_.cluster));
    WEFT_TRY(const std::vector<std::int64_t> chosen, chosen_devices(request_, cluster));
    ModelOptions shape{.seq = request_.seq};
    WEFT_TRY(const ModelInfo info, describe_model(request_.model, shape));
    WEFT_TRY(SoftwareStack stack, choose_stack(info));
    const std::size_t told_before = assumptions_.size();
    std::vector<std::string> told;  // of the precision; an imported file may have one of its own
    WEFT_TRY(Precision precision, choose_precision(request_.dtype, stack, told));
    tell_sequence(info);
    const std::int64_t devices = chosen.empty() ? cluster.device_count() : static_cast<std::int64_t>(chosen.size());
    std::optional<Parallelism> parallelism;
    std::optional<Strategy> from_file;
    BatchPlan batch;
    const BatchRequest asked{request_.global_batch, request_.micro_batch, stack.smaller_last_batch.value};
    const BatchDefaults defaults{info.counts_tokens, info.seq};
    if (!request_.tree.empty() || names_a_file(request_.strategy)) {
      WEFT_TRY(from_file, request_.tree.empty() ? read_strategy(request_.strategy)
                                                : parse_strategy(request_.tree, request_.strategy));
      WEFT_TRY(batch, batch_of_file(*from_file, devices, asked, defaults, assumptions_));
    } else {
      WEFT_TRY(const Shorthand shorthand, parse_shorthand(request_.strategy));
      WEFT_TRY(parallelism, complete_with_batch(shorthand, devices, asked, defaults, assumptions_));
      batch = batch_of(*parallelism);
    }
    if (batch.micro_batches > kMostMicroBatches)
      return error("{} micro-batches per step: at most {}; raise --micro-batch or lower --global-batch",
                   grouped(batch.micro_batches), grouped(kMostMicroBatches));
    shape.batch = batch.graph_batch();
    shape.dtype = precision.stored;
    const auto degree = [&](std::initializer_list<std::string_view> axes) {
      std::int64_t product = 1;
      for (std::string_view axis : axes) product *= from_file->mesh.size_of(axis);
      return product;
    };
    const std::int64_t tp = parallelism ? parallelism->tp : degree({"tp", "etp", "eptp"});
    Vocabulary vocabulary;
    std::int64_t parameters = 0;
    const std::int64_t cp = parallelism ? parallelism->cp : degree({"cp", "ecp"});
    const ContextMode context = parallelism ? parallelism->cp_mode : from_file->context;
    const std::int64_t zigzag = context == ContextMode::AllToAll ? 1 : cp;
    WEFT_TRY_OK(settle_groups(info, parallelism ? parallelism->sequence_cuts() : sequence_cuts(*from_file)));
    WEFT_TRY(Model model, load(info.kind, shape, stack, tp, zigzag, vocabulary, parameters));

    if (model.info.kind == ModelKind::Imported) WEFT_TRY_OK(take_from_file(model, batch, stack, precision, told));
    assumptions_.insert(assumptions_.begin() + static_cast<std::ptrdiff_t>(told_before), told.begin(), told.end());
    if (parallelism) WEFT_TRY_OK(check_experts(*parallelism, model.graph));

    TrainingOptions options = training_options(model, precision);
    WEFT_TRY(options.frozen, frozen_parameters(model.graph, request_.freeze));
    Result<TrainingGraph> differentiated = make_training_graph(std::move(model.graph), options);
    if (!differentiated.ok())
      return request_.freeze.empty() ? differentiated.error()
                                     : differentiated.error().at(fmt::format("--freeze '{}'", request_.freeze));
    TrainingGraph training = std::move(differentiated).value();
    WEFT_TRY(std::optional<TrainingGraph> last, last_micro_batch(batch, shape, options));
    Strategy strategy = parallelism ? expand(*parallelism, training.graph) : std::move(*from_file);
    std::size_t mesh_size = 1;
    for (const MeshAxis& axis : strategy.mesh.axes) mesh_size *= static_cast<std::size_t>(axis.size);
    // A tree of another size knows its devices.
    if (!chosen.empty() && (parallelism || (strategy.mesh.devices.empty() && mesh_size == chosen.size())))
      strategy.mesh.devices = chosen;
    WEFT_TRY(ResolvedStrategy resolved, resolve_all(strategy, training, cluster));
    return Plan{request_,
                std::move(cluster),
                std::move(stack),
                std::move(model.info),
                parameters,
                vocabulary,
                precision,
                options,
                batch,
                parallelism,
                std::move(strategy),
                std::move(training),
                std::move(last),
                std::move(resolved),
                std::move(assumptions_)};
  }

 private:
  Status check_numbers() const {
    constexpr std::int64_t kMostMicroBatch = std::int64_t{1} << 19;
    if (request_.strategy.empty())
      return error("--strategy: empty; write degrees, tp=8,pp=2, or the name of a .yaml file");
    if (request_.micro_batch && (*request_.micro_batch < 1 || *request_.micro_batch > kMostMicroBatch))
      return error("--micro-batch {}: from 1 to {} samples", *request_.micro_batch, grouped(kMostMicroBatch));
    return Ok{};
  }

  // Degrees of experts mean nothing to a model that has none.
  Status check_experts(const Parallelism& plan, const Graph& graph) const {
    if ((plan.ep == 1 && plan.etp == plan.tp) || has_operator(graph, OpKind::Dispatch)) return Ok{};
    if (plan.ep == 1)
      return error("strategy: etp={} cuts experts over devices, but {} has none; leave etp out", plan.etp,
                   request_.model);
    return error("strategy: ep={} spreads experts over devices, but {} has none; leave ep out", plan.ep,
                 request_.model);
  }

  Result<SoftwareStack> choose_stack(const ModelInfo& info) {
    if (!request_.stack.empty()) {
      Result<SoftwareStack> stack = find_stack(request_.stack);
      if (!stack.ok()) return stack.error().at("--stack");
      return stack;
    }
    const std::string_view name = default_stack(info.kind);
    assumptions_.push_back(fmt::format("stack {} (--stack)", name));
    return find_stack(name);
  }

  void tell_sequence(const ModelInfo& info) {
    if (!request_.seq && info.seq > 0)
      assumptions_.push_back(
          info.counts_tokens
              ? fmt::format("sequence of {}: the model's context, at most 8,192 (--seq)", grouped(info.seq))
              : fmt::format("{} steps per sample: the model's (--seq)", grouped(info.seq)));
  }

  // An imported file has a type and, unless it is symbolic, a batch of its own.
  Status check_samples(const Model& model, const BatchPlan& batch, std::int64_t samples) const {
    for (TensorId id : model.graph.tensors().ids()) {
      const Tensor& tensor = model.graph.tensors()[id];
      if (tensor.kind != TensorKind::Input || tensor.type.shape.empty()) continue;
      if (tensor.type.shape[0] == samples) return Ok{};  // the first input counts them
      return error(
          "{}: its input {} has {} samples, but the strategy takes {} (micro-batch {} · {} replicas); choose "
          "--micro-batch so that they agree, or export the file with a symbolic batch",
          request_.model, model.graph.name(id), tensor.type.shape[0], samples, samples / batch.replicas,
          batch.replicas);
    }
    return Ok{};
  }
  Status take_from_file(const Model& model, const BatchPlan& batch, const SoftwareStack& stack, Precision& precision,
                        std::vector<std::string>& told) const {
    WEFT_TRY_OK(check_samples(model, batch, batch.graph_batch()));
    for (TensorId id : model.graph.tensors().ids()) {
      const Tensor& tensor = model.graph.tensors()[id];
      if (tensor.kind == TensorKind::Parameter && precision.stored != tensor.type.dtype) {
        if (!request_.dtype.empty())
          return error("--dtype {}: {} has {} weights", request_.dtype, request_.model, name_of(tensor.type.dtype));
        told.clear();
        WEFT_TRY(precision, choose_precision(name_of(tensor.type.dtype), stack, told));
        told.insert(told.begin(), fmt::format("dtype {}: the file's (--dtype)", precision.name));
      }
    }
    return Ok{};
  }

  Status check_shape(const Model& model, const ModelOptions& shape) const {
    if (model.info.batch != shape.batch && model.info.kind != ModelKind::Imported)
      return error(
          "{}: batch= contradicts the strategy's {} samples per micro-batch of all replicas; use --global-batch and "
          "--micro-batch",
          request_.model, shape.batch);
    if (request_.seq && model.info.seq != *request_.seq)
      return error("{}: seq= contradicts --seq {}; keep one", request_.model, *request_.seq);
    return Ok{};
  }

  // The graph of the last micro-batch, where it has fewer samples.
  Result<std::optional<TrainingGraph>> last_micro_batch(const BatchPlan& batch, ModelOptions shape,
                                                        const TrainingOptions& options) const {
    std::optional<TrainingGraph> last;
    if (batch.last_micro_batch == batch.micro_batch) return last;
    shape.batch = batch.last_graph_batch();
    WEFT_TRY(Model model, load_model(spec_, shape));
    if (model.info.kind == ModelKind::Imported) WEFT_TRY_OK(check_samples(model, batch, shape.batch));
    WEFT_TRY(last, make_training_graph(std::move(model.graph), options));
    return last;
  }

  // Experts take tokens where they lie: every part of the sequence routes its own.
  Status settle_groups(const ModelInfo& info, const std::vector<std::int64_t>& cuts) {
    if (info.experts == 0 || cuts.empty() || has_override(request_.model, "groups")) return Ok{};
    const std::int64_t parts = std::accumulate(cuts.begin(), cuts.end(), std::int64_t{1}, std::multiplies<>());
    if (info.seq % parts != 0)
      return error(
          "{}: a sequence of {} does not divide into the {} parts that the strategy cuts it into, each of "
          "which routes its own tokens to experts; choose --seq so that it does, lower cp or tp, or write sp=0",
          request_.model, info.seq, parts);
    groups_ = fmt::format("groups={}", fmt::join(cuts, "x"));
    assumptions_.push_back(fmt::format(
        "tokens are routed to experts in {} groups per sample, one for every part of the sequence (--model …:groups=)",
        parts));
    return Ok{};
  }

  // The graph as the stack has it: attention in one kernel or several, the vocabulary padded.
  Result<Model> load(ModelKind kind, const ModelOptions& shape, const SoftwareStack& stack, std::int64_t tp,
                     std::int64_t zigzag, Vocabulary& vocabulary, std::int64_t& parameters) {
    std::string spec = groups_.empty() ? request_.model : with_override(request_.model, groups_);
    if (kind != ModelKind::Language) {  // neither padded nor built of other kernels
      WEFT_TRY(Model model, load_model(spec, shape));
      WEFT_TRY_OK(check_shape(model, shape));
      parameters = model.graph.parameter_count();
      spec_ = spec;
      return model;
    }
    // What the stack would have otherwise, one layer shows as well as all.
    WEFT_TRY(const Model model, load_model(with_override(spec, "layers=1"), shape));
    WEFT_TRY_OK(check_shape(model, shape));
    vocabulary.published = vocabulary.stored = vocabulary_of(model.graph);
    if (vocabulary.published > 0) vocabulary.stored = padded_vocabulary(stack, vocabulary.published, tp);
    std::int64_t added = 0;  // parameters of the padding
    if (vocabulary.padded()) {
      spec = with_override(spec, fmt::format("vocab={}", vocabulary.stored));
      WEFT_TRY(const Model padded, load_model(with_override(spec, "layers=1"), shape));
      added = padded.graph.parameter_count() - model.graph.parameter_count();
      assumptions_.push_back(
          fmt::format("vocabulary padded from {} to {}, a multiple of {}·tp: counted in memory, not in parameters",
                      grouped(vocabulary.published), grouped(vocabulary.stored), stack.vocabulary_multiple.value));
    }
    if (!stack.fused_attention.value && request_.model.find("fused_attention=") == std::string::npos &&
        has_operator(model.graph, OpKind::Attention)) {
      spec = with_override(spec, "fused_attention=0");
      assumptions_.push_back(fmt::format("attention in separate kernels, as {} has it", stack.name));
    }
    if (zigzag > 1 && stack.fused_attention.value && request_.model.find("zigzag=") == std::string::npos &&
        model.info.seq % (2 * zigzag) == 0 && is_causal(model.graph)) {
      spec = with_override(spec, fmt::format("zigzag={}", zigzag));
      assumptions_.push_back(
          "tokens in zigzag order over cp, so that causal attention is even (--model …:zigzag=1: not)");
    }
    spec_ = spec;
    WEFT_TRY(Model whole, load_model(spec, shape));
    parameters = whole.graph.parameter_count() - added;
    return whole;
  }

  TrainingOptions training_options(const Model& model, const Precision& precision) {
    TrainingOptions options;
    // Transformers, wherever they come from: attention in one kernel, or norms over features.
    const bool adam = model.info.kind == ModelKind::Language || has_operator(model.graph, OpKind::Attention) ||
                      has_operator(model.graph, OpKind::LayerNorm);
    options.optimizer = adam                                        ? OptimizerKind::AdamW
                        : model.info.kind == ModelKind::Recommender ? OptimizerKind::Sgd
                                                                    : OptimizerKind::Momentum;
    options.master_weights = precision.masters;
    options.gradient_dtype = precision.gradients;
    options.moment_dtype = precision.moments;
    if (!adam && model.info.kind != ModelKind::Recurrent) options.clip_norm.reset();
    options.loss_scaling = precision.stored == DType::F16;
    assumptions_.push_back(fmt::format("optimizer {}{}", name_of(options.optimizer),
                                       options.clip_norm ? ", gradients clipped by their norm" : ""));
    if (has_operator(model.graph, OpKind::Dispatch)) assumptions_.emplace_back("experts: balanced routing");
    return options;
  }

  Result<ResolvedStrategy> resolve_all(const Strategy& strategy, const TrainingGraph& training,
                                       const Cluster& cluster) const {
    const std::string place = names_a_file(request_.strategy) ? request_.strategy : "strategy";
    Result<ResolvedStrategy> resolved = resolve(strategy, training, cluster, place);
    if (resolved.ok()) return resolved;
    std::vector<Violation> violations = validate(strategy, training, cluster, place);
    if (violations.size() < 2) return resolved.error();
    std::stable_sort(violations.begin(), violations.end(),
                     [](const Violation& a, const Violation& b) { return line_of(a) < line_of(b); });
    std::string message = fmt::format("{}: {} violations", place, violations.size());
    for (const Violation& violation : violations) message += "\n  " + print(violation);
    return Error{std::move(message)};
  }

  const PlanRequest& request_;
  std::string spec_;    // the model as it is built: the request's, with what the stack adds
  std::string groups_;  // of tokens that are routed to experts, as an override of the model; empty: as it has them
  std::vector<std::string> assumptions_;
};

}  // namespace

std::int64_t Plan::frozen_parameters() const {
  std::int64_t count = 0;
  for (TensorId id : options.frozen) count += *checked_product(training.graph.tensors()[id].type.shape);
  return count;
}

std::vector<DeviceId> Plan::ranks() const {
  std::vector<DeviceId> devices;
  if (!strategy.mesh.devices.empty()) {
    for (std::int64_t device : strategy.mesh.devices) devices.emplace_back(static_cast<std::size_t>(device));
    return devices;
  }
  // Devices are ranks, in their own order.
  std::set<DeviceId> used;
  for (const StageMesh& rank : resolved.ranks()) used.insert(rank.mesh.devices().begin(), rank.mesh.devices().end());
  for (const Mesh& mesh : resolved.placements) used.insert(mesh.devices().begin(), mesh.devices().end());
  devices.assign(used.begin(), used.end());
  return devices;
}

std::string_view default_stack(ModelKind kind) { return kind == ModelKind::Language ? "megatron-lm" : "pytorch-ddp"; }

Result<std::vector<std::int64_t>> chosen_devices(const PlanRequest& request, const Cluster& cluster) {
  for (std::int64_t device : request.devices)
    if (device < 0 || device >= cluster.device_count())
      return error("device {}: the cluster has {}", device, cluster.device_count());
  std::vector<std::int64_t> chosen = request.devices;
  if (!chosen.empty() || !request.device_count || *request.device_count == cluster.device_count()) return chosen;
  const Result<std::vector<DeviceId>> evenly = devices_evenly(cluster, *request.device_count);
  if (!evenly.ok()) return evenly.error().at("--devices");
  for (DeviceId device : *evenly) chosen.push_back(device.index());
  return chosen;
}

Result<Plan> make_plan(const PlanRequest& request) { return PlanMaker(request).make(); }

Result<CompiledStrategy> compile_plan(const Plan& plan, const StepPrice* prices, bool split_backward) {
  CompileOptions options = compile_options(plan.stack, plan.cluster, number_types(plan.precision, plan.stack));
  options.prices = prices;
  options.split_backward = split_backward;
  Result<CompiledStrategy> compiled =
      compile_strategy(plan.training, plan.resolved, options, plan.last ? &plan.last->graph : nullptr);
  if (!compiled.ok())
    return compiled.error().at(names_a_file(plan.request.strategy) ? plan.request.strategy : "strategy");
  return compiled;
}

}  // namespace weft
