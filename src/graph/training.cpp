#include "graph/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/check.h"

namespace weft {

std::string_view name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::Sgd:
      return "sgd";
    case OptimizerKind::Momentum:
      return "momentum";
    case OptimizerKind::Adam:
      return "adam";
    case OptimizerKind::AdamW:
      return "adamw";
    case OptimizerKind::Lamb:
      return "lamb";
  }
  return "?";
}

namespace {

class BackwardBuilder {
 public:
  BackwardBuilder(Graph forward, const TrainingOptions& options)
      : forward_ops_(forward.ops().size()),
        forward_tensors_(forward.tensors().size()),
        loss_(forward.results().empty() ? TensorId() : forward.results().front()),
        builder_(std::move(forward)),
        options_(options),
        contributions_(forward_tensors_),
        needs_gradient_(forward_tensors_, 0),
        terms_(forward_tensors_) {}

  Result<TrainingGraph> build() {
    if (!loss_.valid() || !builder_.shape(loss_).empty())
      return error("training needs a scalar loss as the graph's first result");
    mark_what_needs_gradients();
    if (!needs_gradient_[loss_]) return error("the loss depends on no parameter that is trained");
    begin_backward();
    for (std::size_t i = forward_ops_; i-- > 0;) backward_of(OpId(i));
    const OpId first_step(graph().ops().size());
    step();

    std::vector<std::pair<TensorId, TensorId>> accumulated = accumulated_;
    WEFT_TRY(Graph graph, std::move(builder_).freeze());
    return TrainingGraph{std::move(graph), OpId(forward_ops_), first_step, std::move(accumulated)};
  }

 private:
  const Graph& graph() const { return builder_.so_far(); }

  void mark_what_needs_gradients() {
    for (TensorId id : IdRange<TensorId>(forward_tensors_))
      needs_gradient_[id] = graph().tensors()[id].kind == TensorKind::Parameter;
    for (TensorId id : options_.frozen) needs_gradient_[id] = 0;
    // Per signature, the inputs a gradient can flow to: the same for every operator that shares it.
    IdVec<SignatureId, std::vector<Gradient>> gradients(graph().signatures().size());
    for (SignatureId id : gradients.ids()) gradients[id] = gradients_of(graph().signatures()[id]);
    for (OpId op : IdRange<OpId>(forward_ops_)) {
      bool flows = false;
      const auto inputs = graph().inputs(op);
      const Signature& signature = graph().signature(op);
      for (const Gradient& gradient : gradients[graph().ops()[op].signature])
        for (const std::string& write : gradient.writes)
          for (std::size_t i = 0; i < inputs.size(); ++i)
            flows = flows ||
                    (write.compare(1, std::string::npos, signature.inputs[i].name) == 0 && needs_gradient_[inputs[i]]);
      if (!flows) continue;
      for (TensorId output : graph().outputs(op))
        needs_gradient_[output] = is_floating(graph().tensors()[output].type.dtype);
    }
    gradients_ = std::move(gradients);
  }

  // The sum of the micro-batches' losses, and the gradient that enters backward.
  void begin_backward() {
    const TensorId weight = builder_.input("loss_weight", DType::F32, {});
    TensorId entering = weight;
    if (options_.loss_scaling) {
      const auto scope = builder_.scope("optimizer");
      loss_scale_ = builder_.scalar("loss_scale", DType::F32);
      const TensorId inputs[] = {weight, loss_scale_};
      entering = builder_.op(OpKind::ScaleLoss, "scale_loss", inputs, {}, Phase::Backward).front();
    }
    const Op producer = graph().ops()[graph().tensors()[loss_].producer];
    const auto scope = builder_.scope(producer.module);
    const TensorId inputs[] = {builder_.state(producer.name + "_sum", DType::F32, {}), loss_, weight};
    loss_sum_ = builder_.op(OpKind::AccumulateLoss, producer.name + "@accumulate", inputs, {}, Phase::Backward).front();
    add(loss_, entering);
  }

  // Adds a term to the gradient of `tensor`. Parameters accumulate it immediately, so that the term can be freed.
  void add(TensorId tensor, TensorId gradient) {
    if (graph().tensors()[tensor].kind == TensorKind::Parameter)
      accumulate(tensor, gradient);
    else
      contributions_[tensor].push_back(gradient);
  }

  void accumulate(TensorId parameter, TensorId gradient) {
    const std::string own = graph().tensors()[parameter].name;
    const auto scope = builder_.scope(graph().tensors()[parameter].module);
    Terms& terms = terms_[parameter];
    if (terms.count++ == 0) {
      const TensorType& type = graph().tensors()[parameter].type;
      const TensorId buffer = builder_.state(own + "_grad", options_.gradient_dtype.value_or(type.dtype), type.shape);
      terms.at = accumulated_.size();
      accumulated_.emplace_back(parameter, buffer);
    }
    const std::string name = terms.count == 1 ? own + "@accumulate" : fmt::format("{}@accumulate{}", own, terms.count);
    TensorId& sum = accumulated_[terms.at].second;
    const TensorId inputs[] = {sum, gradient};
    sum = builder_.op(OpKind::Accumulate, name, inputs, {}, Phase::Backward).front();
  }

  // The whole gradient of a forward tensor: the sum of its terms; invalid when none arrived.
  TensorId gradient_of(TensorId tensor) {
    std::vector<TensorId>& terms = contributions_[tensor];
    if (terms.empty()) return {};
    const Tensor described = graph().tensors()[tensor];
    for (std::size_t i = 1; i < terms.size(); ++i) {
      const Op& producer = graph().ops()[described.producer];
      const auto scope = builder_.scope(producer.module);
      const std::string& output = graph().signature(described.producer).outputs[described.output].name;
      const TensorId inputs[] = {terms[0], terms[i]};
      terms[0] = builder_
                     .op(OpKind::Binary, fmt::format("{}@sum_d{}{}", producer.name, output, i), inputs, {{"fn", "add"}},
                         Phase::Backward)
                     .front();
    }
    terms.resize(1);
    return terms[0];
  }

  void backward_of(OpId op) {
    // Copies, in lists reused for every operator: adding operators moves the graph's own.
    std::vector<TensorId>&inputs = inputs_, &outputs = outputs_, &output_gradients = output_gradients_;
    inputs.assign(graph().inputs(op).begin(), graph().inputs(op).end());
    outputs.assign(graph().outputs(op).begin(), graph().outputs(op).end());
    output_gradients.clear();
    bool any = false;
    for (TensorId output : outputs) {
      output_gradients.push_back(needs_gradient_[output] ? gradient_of(output) : TensorId());
      any = any || output_gradients.back().valid();
    }
    if (!any) return;

    const SignatureId signature_id = graph().ops()[op].signature;
    for (const Gradient& declared : gradients_[signature_id]) {
      if (!builder_.ok()) return;
      const Signature& signature = graph().signatures()[signature_id];
      const auto input_named = [&](std::string_view name) {
        for (std::size_t i = 0; i < inputs.size(); ++i)
          if (signature.inputs[i].name == name) return inputs[i];
        return TensorId();
      };
      const auto output_named = [&](std::string_view name, const std::vector<TensorId>& from) {
        for (std::size_t i = 0; i < outputs.size(); ++i)
          if (signature.outputs[i].name == name) return from[i];
        return TensorId();
      };
      const bool wanted = std::any_of(declared.writes.begin(), declared.writes.end(), [&](const std::string& write) {
        return needs_gradient_[input_named(std::string_view(write).substr(1))];
      });
      if (!wanted) continue;

      // Gradients of unused outputs are left out of the product's inputs.
      std::vector<TensorId>& reads = reads_;
      reads.clear();
      std::vector<std::size_t> left_out;
      bool flows = false;
      for (std::size_t i = 0; i < declared.reads.size(); ++i) {
        const std::string& name = declared.reads[i];
        TensorId tensor = input_named(name);
        if (!tensor.valid()) tensor = output_named(name, outputs);
        if (!tensor.valid()) {
          tensor = output_named(std::string_view(name).substr(1), output_gradients);
          if (!tensor.valid()) {
            left_out.push_back(i);
            continue;
          }
          flows = true;
        }
        reads.push_back(tensor);
      }
      if (!flows) continue;

      std::optional<Gradient> changed;
      if (!left_out.empty()) {
        changed = declared;
        while (!left_out.empty()) {
          changed->reads.erase(changed->reads.begin() + static_cast<std::ptrdiff_t>(left_out.back()));
          left_out.pop_back();
        }
      }
      if (declared.name.empty()) {
        const TensorId input = input_named(std::string_view(declared.writes[0]).substr(1));
        if (builder_.shape(input) == builder_.shape(reads[0])) {
          add(input, reads[0]);
          continue;
        }
        if (!changed) changed = declared;
        changed->name = "grad_" + declared.writes[0].substr(1);  // broadcast: the gradient sums over what was repeated
      }
      const Gradient& gradient = changed ? *changed : declared;
      std::vector<TensorId>& targets = targets_;  // found now: adding an operator may move the signatures
      targets.clear();
      for (const std::string& write : gradient.writes)
        targets.push_back(input_named(std::string_view(write).substr(1)));
      const std::vector<TensorId> made = builder_.gradient_op(op, gradient, reads);
      if (!builder_.ok()) return;
      for (std::size_t i = 0; i < made.size(); ++i)
        if (needs_gradient_[targets[i]]) add(targets[i], made[i]);
    }
  }

  std::vector<TensorId> step_op(OpKind kind, std::string name, const std::vector<TensorId>& inputs, Attrs attrs = {}) {
    return builder_.op(kind, std::move(name), inputs, std::move(attrs), Phase::Step);
  }

  // Adds the sums over all devices as one operator; gives the factor of all gradients, from clipping and loss scaling.
  std::optional<TensorId> sum_over_all() {
    std::vector<TensorId> terms = {loss_sum_};
    std::vector<std::int64_t> counts = {1};
    std::string names = "loss";
    const auto add_terms = [&](OpKind kind, const std::string& name) {
      for (const auto& [parameter, gradient] : accumulated_) {
        const Tensor& described = graph().tensors()[parameter];
        const auto scope = builder_.scope(described.module);
        terms.push_back(step_op(kind, described.name + "@" + name, {gradient}).front());
      }
      counts.push_back(static_cast<std::int64_t>(accumulated_.size()));
      names += " " + name;
    };
    if (options_.clip_norm) add_terms(OpKind::SumSquares, "squares");
    if (options_.loss_scaling) add_terms(OpKind::NonFinite, "non_finite");
    const auto scope = builder_.scope("optimizer");
    std::vector<TensorId> inputs = step_op(OpKind::AddScalars, "sums", terms, {{"counts", counts}, {"names", names}});
    if (!builder_.ok()) return std::nullopt;
    for (TensorId sum : inputs) builder_.result(sum);
    inputs.erase(inputs.begin());  // the loss
    if (inputs.empty()) return std::nullopt;
    Attrs attrs{{"clip", std::int64_t{options_.clip_norm ? 1 : 0}},
                {"scaled", std::int64_t{options_.loss_scaling ? 1 : 0}}};
    if (options_.clip_norm) attrs.set("max_norm", *options_.clip_norm);
    if (options_.loss_scaling) inputs.push_back(loss_scale_);
    return step_op(OpKind::ClipCoefficient, "clip", inputs, attrs).front();
  }

  void step() {
    const std::optional<TensorId> scale = sum_over_all();
    TensorId rate, number;
    {
      const auto scope = builder_.scope("optimizer");
      rate = builder_.scalar("learning_rate", DType::F32);
      const bool counts = options_.optimizer != OptimizerKind::Sgd && options_.optimizer != OptimizerKind::Momentum;
      if (counts) number = builder_.scalar("step", DType::I64);
    }
    const auto updates = accumulated_;
    const bool lamb = options_.optimizer == OptimizerKind::Lamb;
    std::array<Attrs, 2> attributes;  // without and with master weights
    if (!lamb) attributes[1].set("master", std::int64_t{1});
    for (Attrs& each : attributes) {
      if (scale) each.set("scaled", std::int64_t{1});
      if (options_.weight_decay != 0) each.set("weight_decay", options_.weight_decay);
      if (options_.optimizer == OptimizerKind::AdamW) each.set("decoupled", std::int64_t{1});
    }
    for (const auto& [parameter, gradient] : updates) {
      if (!builder_.ok()) return;
      const Tensor described = graph().tensors()[parameter];
      const auto scope = builder_.scope(described.module);
      const auto state = [&](std::string_view name, DType dtype) {
        return builder_.state((described.name + '_').append(name), dtype, described.type.shape);
      };
      const bool master = options_.master_weights && described.type.dtype != DType::F32;
      const Attrs& attrs = attributes[master ? 1 : 0];
      std::vector<TensorId> inputs = {parameter, gradient};
      TensorId master_copy;
      if (master) {
        master_copy = state("master", DType::F32);
        if (!lamb) inputs.push_back(master_copy);
      }
      if (options_.optimizer != OptimizerKind::Sgd) inputs.push_back(state("m", options_.moment_dtype));
      if (options_.optimizer != OptimizerKind::Sgd && options_.optimizer != OptimizerKind::Momentum)
        inputs.push_back(state("v", options_.moment_dtype));
      if (scale) inputs.push_back(*scale);
      if (!lamb) inputs.push_back(rate);
      if (number.valid()) inputs.push_back(number);
      const std::string name = described.name + "@step";
      switch (options_.optimizer) {
        case OptimizerKind::Sgd:
          step_op(OpKind::Sgd, name, inputs, attrs);
          break;
        case OptimizerKind::Momentum:
          step_op(OpKind::Momentum, name, inputs, attrs);
          break;
        case OptimizerKind::AdamW:
        case OptimizerKind::Adam:
          step_op(OpKind::Adam, name, inputs, attrs);
          break;
        case OptimizerKind::Lamb: {
          const TensorId update = step_op(OpKind::LambUpdate, described.name + "@update", inputs, attrs).front();
          const TensorId weight = master ? master_copy : parameter;
          const TensorId p2 = step_op(OpKind::SumSquares, described.name + "@norm", {weight}).front();
          const TensorId u2 = step_op(OpKind::SumSquares, described.name + "@update_norm", {update}).front();
          std::vector<TensorId> apply = {parameter, update, p2, u2, rate};
          if (master) apply.push_back(master_copy);
          step_op(OpKind::LambApply, name, apply, {{"master", std::int64_t{master ? 1 : 0}}});
          break;
        }
      }
    }
  }

  std::size_t forward_ops_, forward_tensors_;
  TensorId loss_;
  TensorId loss_sum_, loss_scale_;  // over the micro-batches; invalid without loss scaling
  GraphBuilder builder_;
  const TrainingOptions& options_;
  IdVec<TensorId, std::vector<TensorId>> contributions_;
  IdVec<TensorId, char> needs_gradient_;
  IdVec<SignatureId, std::vector<Gradient>> gradients_;
  std::vector<std::pair<TensorId, TensorId>> accumulated_;
  std::vector<TensorId> inputs_, outputs_, output_gradients_, reads_, targets_;  // of the operator at hand
  // Of a parameter's gradient: how many terms have been added, and where in `accumulated_` their sum is.
  struct Terms {
    std::size_t count = 0, at = 0;
  };
  IdVec<TensorId, Terms> terms_;
};

}  // namespace

Result<TrainingGraph> make_training_graph(Graph forward, const TrainingOptions& options) {
  return BackwardBuilder(std::move(forward), options).build();
}

std::vector<TensorId> saved_tensors(const TrainingGraph& training, const RecomputeRegions& regions) {
  const Graph& graph = training.graph;
  IdVec<TensorId, char> saved(graph.tensors().size(), 0);
  const auto save = [&](TensorId id) {
    if (graph.tensors()[id].kind == TensorKind::Activation) saved[graph.tensors()[id].storage] = 1;
  };
  // A region before every trained parameter has no backward products and is not recomputed.
  std::set<int> differentiated;
  for (const Op& op : graph.ops())
    if (op.phase == Phase::Backward) differentiated.insert(regions.of(op.forward));
  for (OpId op : graph.ops().ids()) {
    const Op& described = graph.ops()[op];
    const bool backward = described.phase == Phase::Backward;
    const bool again =
        described.phase == Phase::Forward && regions.again(op) && differentiated.contains(regions.of(op));
    if (!backward && !again) continue;
    const int region = regions.of(backward ? described.forward : op);
    for (TensorId input : graph.inputs(op)) {
      const OpId producer = graph.tensors()[input].producer;
      if (!regions.again(producer) || regions.of(producer) != region) save(input);
    }
  }
  std::vector<TensorId> list;
  for (TensorId id : saved.ids())
    if (saved[id] && graph.tensors()[id].kind == TensorKind::Activation) list.push_back(id);
  return list;
}

Bytes saved_bytes(const TrainingGraph& training, const RecomputeRegions& regions) {
  Bytes total;
  for (TensorId id : saved_tensors(training, regions)) total += training.graph.bytes(id);
  return total;
}

bool sums_losses(const Graph& graph, TensorId state) {
  const auto uses = graph.uses(graph.tensors()[state].storage);
  return std::any_of(uses.begin(), uses.end(),
                     [&](const Use& use) { return graph.kind(use.op) == OpKind::AccumulateLoss && use.input == 0; });
}

}  // namespace weft
