#include "plan/trained_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/units.h"
#include "graph/autocast.h"
#include "plan/freeze.h"

namespace weft {
namespace {

bool has_operator(const Graph& graph, OpKind kind) {
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == kind) return true;
  return false;
}

// Whether every attention is one operator with a causal mask.
bool is_causal(const Graph& graph) {
  bool causal = false;
  for (OpId op : graph.ops().ids()) {
    if (graph.kind(op) != OpKind::Attention) continue;
    causal = graph.signature(op).attrs.integer("causal", 0) != 0;
    if (!causal) return false;
  }
  return causal;
}

// The number of classes of the cross-entropy loss; of several losses, the largest (BERT's next-sentence loss has two
// classes).
std::int64_t vocabulary_of(const Graph& graph) {
  std::int64_t classes = 0;
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == OpKind::CrossEntropy)
      classes = std::max(classes, graph.tensors()[graph.inputs(op)[0]].type.shape.back());
  return classes;
}

// AdamW for transformers, also imported ones: they have attention in one kernel, or norms over features.
OptimizerKind usual_optimizer(const ModelInfo& info, const Graph& graph) {
  const bool adam = info.kind == ModelKind::Language || has_operator(graph, OpKind::Attention) ||
                    has_operator(graph, OpKind::LayerNorm);
  return adam                                  ? OptimizerKind::AdamW
         : info.kind == ModelKind::Recommender ? OptimizerKind::Sgd
                                               : OptimizerKind::Momentum;
}

class ModelBuilder {
 public:
  ModelBuilder(const TrainingJob& job, const GraphShape& shape)
      : job_(job),
        words_(job.words),
        shape_(shape),
        options_{.batch = shape.batch, .seq = words_.seq, .dtype = job.precision.stored},
        spec_(words_.model) {}

  Result<TrainedModel> run() {
    WEFT_TRY_OK(settle_routing());
    settle_imbalance();
    WEFT_TRY(Model model, load());
    if (model.info.kind == ModelKind::Imported) WEFT_TRY_OK(check_samples(model.graph, shape_.batch));
    WEFT_TRY_OK(cast(model));
    result_.options = training_options(model);
    WEFT_TRY(result_.options.frozen, frozen_parameters(model.graph, words_.freeze));
    Result<TrainingGraph> differentiated = make_training_graph(std::move(model.graph), result_.options);
    if (!differentiated.ok())
      return words_.freeze.empty() ? differentiated.error()
                                   : differentiated.error().at(fmt::format("--freeze '{}'", words_.freeze));
    result_.training = std::move(differentiated).value();
    result_.info = std::move(model.info);
    WEFT_TRY_OK(build_last());
    return std::move(result_);
  }

 private:
  // Tokens are routed to experts where they are stored: every part of the sequence routes its own.
  Status settle_routing() {
    if (shape_.routing.empty()) return Ok{};
    const std::int64_t parts =
        std::accumulate(shape_.routing.begin(), shape_.routing.end(), std::int64_t{1}, std::multiplies<>());
    if (job_.model.seq % parts != 0)
      return error(
          "{}: a sequence of {} does not divide into the {} parts that the strategy cuts it into, each of "
          "which routes its own tokens to experts; choose --seq so that it does, lower cp or tp, or write sp=0",
          words_.model, job_.model.seq, parts);
    spec_ = with_override(spec_, "groups", fmt::format("{}", fmt::join(shape_.routing, "x")));
    assume(fmt::format(
        "tokens are routed to experts in {} groups per sample, one for every part of the sequence (--model …:groups=)",
        parts));
    return Ok{};
  }

  // One of n devices has at most all rows, n times the mean: a device with all experts has them whatever tokens choose.
  void settle_imbalance() {
    const auto devices = static_cast<double>(shape_.expert_devices);
    if (shape_.expert_devices == 0 || job_.model.imbalance <= devices) return;
    spec_ = with_override(spec_, "imbalance", fmt::format("{}", devices));
    assume(fmt::format("imbalance {:g}: experts are on {} device{}, of which one has at most {} times the mean",
                       job_.model.imbalance, devices, devices == 1 ? "" : "s", devices));
  }

  // The model as the stack builds it; `spec_` becomes the specification that was built.
  Result<Model> load() {
    if (job_.model.kind != ModelKind::Language) {  // stacks change language models only
      WEFT_TRY(Model model, load_model(spec_, options_));
      WEFT_TRY_OK(check_shape(model.info));
      result_.parameters = model.graph.parameter_count();
      return model;
    }
    // One layer is enough to see what the stack builds differently.
    WEFT_TRY(const Model model, load_model(with_override(spec_, "layers", "1"), options_));
    WEFT_TRY_OK(check_shape(model.info));
    WEFT_TRY(const std::int64_t added, pad_vocabulary(model.graph));
    const SoftwareStack& stack = job_.stack;
    if (!stack.fused_attention.value && !has_override(words_.model, "fused_attention") &&
        has_operator(model.graph, OpKind::Attention)) {
      spec_ = with_override(spec_, "fused_attention", "0");
      assume(fmt::format("attention in separate kernels, as {} has it", stack.name));
    }
    if (shape_.zigzag > 1 && stack.fused_attention.value && !has_override(words_.model, "zigzag") &&
        model.info.seq % (2 * shape_.zigzag) == 0 && is_causal(model.graph)) {
      spec_ = with_override(spec_, "zigzag", fmt::format("{}", shape_.zigzag));
      assume("tokens in zigzag order over cp, so that causal attention is even (--model …:zigzag=1: not)");
    }
    WEFT_TRY(Model whole, load_model(spec_, options_));
    result_.parameters = whole.graph.parameter_count() - added;
    return whole;
  }

  // Returns the number of parameters that the padding adds.
  Result<std::int64_t> pad_vocabulary(const Graph& one_layer) {
    Vocabulary& vocabulary = result_.vocabulary;
    vocabulary.published = vocabulary.stored = vocabulary_of(one_layer);
    if (vocabulary.published > 0) vocabulary.stored = padded_vocabulary(job_.stack, vocabulary.published, shape_.tp);
    if (!vocabulary.padded()) return std::int64_t{0};
    spec_ = with_override(spec_, "vocab", fmt::format("{}", vocabulary.stored));
    WEFT_TRY(const Model padded, load_model(with_override(spec_, "layers", "1"), options_));
    assume(fmt::format("vocabulary padded from {} to {}, a multiple of {}·tp: counted in memory, not in parameters",
                       grouped(vocabulary.published), grouped(vocabulary.stored),
                       job_.stack.vocabulary_multiple.value));
    return padded.graph.parameter_count() - one_layer.parameter_count();
  }

  Status check_shape(const ModelInfo& info) const {
    if (info.batch != shape_.batch && info.kind != ModelKind::Imported)
      return error(
          "{}: batch= contradicts the strategy's {} samples per micro-batch of all replicas; use --global-batch and "
          "--micro-batch",
          words_.model, shape_.batch);
    if (words_.seq && info.seq != *words_.seq)
      return error("{}: seq= contradicts --seq {}; keep one", words_.model, *words_.seq);
    return Ok{};
  }

  // An imported file has a batch size of its own, unless it is symbolic.
  Status check_samples(const Graph& graph, std::int64_t samples) const {
    for (TensorId id : graph.tensors().ids()) {
      const Tensor& tensor = graph.tensors()[id];
      if (tensor.kind != TensorKind::Input || tensor.type.shape.empty()) continue;
      if (tensor.type.shape[0] == samples) return Ok{};  // the first input decides
      return error(
          "{}: its input {} has {} samples, but the strategy takes {} in a micro-batch of all replicas; choose "
          "--micro-batch so that they agree, or export the file with a symbolic batch",
          words_.model, graph.name(id), tensor.type.shape[0], samples);
    }
    return Ok{};
  }

  Status cast(Model& model) const {
    if (!job_.precision.autocast) return Ok{};
    WEFT_TRY(model.graph, with_autocast(model.graph, job_.precision.stored));
    return Ok{};
  }

  TrainingOptions training_options(const Model& model) {
    TrainingOptions options;
    options.optimizer = optimizer_of(job_, model.info, model.graph);
    options.master_weights = job_.precision.masters;
    options.gradient_dtype = job_.precision.gradients;
    options.moment_dtype = job_.precision.moments;
    const bool clips = usual_optimizer(model.info, model.graph) == OptimizerKind::AdamW;
    if (!job_.stack.clip_gradients.value || (!clips && model.info.kind != ModelKind::Recurrent))
      options.clip_norm.reset();
    options.loss_scaling = job_.precision.stored == DType::F16;
    assume(fmt::format("optimizer {}{}", name_of(options.optimizer),
                       options.clip_norm ? ", gradients clipped by their norm" : ""));
    if (has_operator(model.graph, OpKind::Dispatch))
      assume(model.info.imbalance > 1
                 ? fmt::format("experts: the busiest device has {:g} times the mean rows, and all go by it",
                               model.info.imbalance)
                 : "experts: balanced routing, imbalance 1 (--model …:imbalance=)");
    return options;
  }

  Status build_last() {
    if (shape_.last_batch == shape_.batch) return Ok{};
    options_.batch = shape_.last_batch;
    WEFT_TRY(Model model, load_model(spec_, options_));
    if (model.info.kind == ModelKind::Imported) WEFT_TRY_OK(check_samples(model.graph, shape_.last_batch));
    WEFT_TRY_OK(cast(model));
    WEFT_TRY(result_.last, make_training_graph(std::move(model.graph), result_.options));
    return Ok{};
  }

  void assume(std::string assumption) { result_.assumptions.push_back(std::move(assumption)); }

  const TrainingJob& job_;
  const PlanRequest& words_;
  const GraphShape& shape_;
  ModelOptions options_;
  std::string spec_;  // the request's model with the overrides of stack and strategy
  TrainedModel result_;
};

}  // namespace

OptimizerKind optimizer_of(const TrainingJob& job, const ModelInfo& info, const Graph& graph) {
  return job.optimizer.value_or(usual_optimizer(info, graph));
}

Result<TrainedModel> build_trained_model(const TrainingJob& job, const GraphShape& shape) {
  return ModelBuilder(job, shape).run();
}

Result<std::shared_ptr<const TrainedModel>> GraphCache::build(const TrainingJob& job, const GraphShape& shape) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(shape); found != known_.end()) return found->second;
  }
  WEFT_TRY(TrainedModel made, build_trained_model(job, shape));
  auto built = std::make_shared<const TrainedModel>(std::move(made));
  const std::lock_guard lock(mutex_);
  if (known_.emplace(shape, built).second) order_.push_back(shape);
  if (order_.size() > most_) {
    known_.erase(order_.front());
    order_.pop_front();
  }
  return built;
}

}  // namespace weft
