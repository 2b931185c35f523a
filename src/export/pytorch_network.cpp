// Convolutional networks as a list of operators that a script executes in order, by data parallelism.
#include <fmt/format.h>

#include <cmath>

#include "export/pytorch.h"
#include "models/models.h"
#include "plan/trained_model.h"

namespace weft {
namespace {

std::string python(const Attrs& attrs) {
  std::string text;
  for (const auto& [name, value] : attrs) {
    text += fmt::format("{}\"{}\": ", text.empty() ? "" : ", ", name);
    std::visit(
        [&](const auto& of) {
          using T = std::decay_t<decltype(of)>;
          if constexpr (std::is_same_v<T, std::string>)
            text += fmt::format("\"{}\"", of);
          else if constexpr (std::is_arithmetic_v<T>)
            text += fmt::format("{}", of);
          else
            text += fmt::format("[{}]", fmt::join(of, ", "));
        },
        value);
  }
  return "{" + text + "}";
}

std::string shape_of(const Shape& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

// Why the script does not know an operator of the forward pass; none: it does.
std::optional<std::string> unknown(const Graph& graph, OpId op) {
  const Signature& signature = graph.signature(op);
  const std::string_view fn = signature.attrs.text("fn", "");
  switch (signature.kind) {
    case OpKind::Conv2d:
    case OpKind::Bias:
    case OpKind::Reshape:
    case OpKind::Linear:
    case OpKind::BatchNorm:
    case OpKind::CrossEntropy:
    case OpKind::NllLoss:
    case OpKind::Pool2d:
      return {};
    case OpKind::Unary:
      if (fn == "relu") return {};
      break;
    case OpKind::Binary:
      if (fn == "add") return {};
      break;
    case OpKind::Reduce:
      if (fn == "mean") return {};
      break;
    default:
      break;
  }
  return fmt::format(
      "the operator {} of {}: the script has convolutions, pooling, batch norms, linears and ReLU",
      fn.empty() ? std::string(name_of(signature.kind)) : fmt::format("{} {}", name_of(signature.kind), fn),
      graph.name(op));
}

Result<Model> forward_of(const TrainingJob& job, std::int64_t batch) {
  return load_model(job.words.model, {.batch = batch, .dtype = DType::F32});
}

}  // namespace

std::optional<std::string> no_network_strategy(const ExportSubject& subject) {
  const TrainingJob& job = subject.job;
  if (job.model.kind != ModelKind::Vision)
    return fmt::format("{} is no decoder-only transformer and no convolutional network", job.words.model);
  if (job.precision.name != "fp32") return "the script trains in fp32; write --dtype fp32";
  const Result<Model> model = forward_of(job, 1);
  if (!model.ok()) return model.error().message;
  for (OpId op : model->graph.ops().ids())
    if (auto why = unknown(model->graph, op)) return why;
  const OptimizerKind kind = optimizer_of(job, model->info, model->graph);
  if (kind == OptimizerKind::Lamb) return "--optimizer lamb";
  return {};
}

std::optional<std::string> why_not_network(const Parallelism& plan) {
  if (plan.tp * plan.pp * plan.cp > 1) return "other than data parallelism";
  if (plan.zero > 0) return "ZeRO: the script keeps whole weights and optimizer state; write zero=0";
  if (plan.recompute != Recompute::None || !plan.full.empty()) return "recomputation";
  if (!plan.offload.empty()) return "offloading";
  return {};
}

Result<std::string> write_network(const ExportSubject& subject, const Parallelism& plan) {
  const TrainingJob& job = subject.job;
  WEFT_TRY(const Model model, forward_of(job, plan.micro_batch));
  WEFT_TRY(const TrainedModel trained,
           build_trained_model(job, {.batch = plan.micro_batch, .last_batch = plan.micro_batch}));
  const Graph& graph = model.graph;
  std::string parameters, inputs, operations;
  for (OpId op : graph.ops().ids()) {
    const Signature& signature = graph.signature(op);
    const std::string kind(name_of(signature.kind));
    if (signature.kind == OpKind::NllLoss) continue;  // with the cross-entropy before it
    std::string names;
    for (std::size_t i = 0; i < graph.inputs(op).size(); ++i) {
      const TensorId id = graph.inputs(op)[i];
      const Tensor& tensor = graph.tensors()[id];
      const std::string name = graph.name(id), operand = signature.inputs[i].name;
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name);
      if (tensor.kind == TensorKind::Parameter)
        parameters += fmt::format("    \"{}\": ({}, \"{}\", \"{}\"),\n", name, shape_of(tensor.type.shape),
                                  operand == "gamma"                       ? "one"
                                  : operand == "beta" || operand == "bias" ? "zero"
                                                                           : "drawn",
                                  kind);
      if (tensor.kind == TensorKind::Input)
        inputs += fmt::format("    \"{}\": ({}, {}),\n", name, shape_of(tensor.type.shape),
                              operand == "target" ? signature.inputs[0].dims.back().size : 0);
    }
    operations += fmt::format("    (\"{}\", \"{}\", [{}], {}),\n", graph.name(graph.outputs(op)[0]), kind, names,
                              python(signature.attrs));
  }
  return filled_script(
      "presets/targets/train_network.py",
      fmt::format(
          "# {}: {}\n# Of every parameter its shape, what fills it, and what it is a weight of.\nPARAMETERS = "
          "{{\n{}}}\n"
          "# Of every input its shape; of labels how many classes there are.\nINPUTS = {{\n{}}}\n"
          "OPERATIONS = [\n{}]\nPLAN = {{\"dp\": {}, \"micro_batch\": {}, \"micro_batches\": {}, \"optimizer\": "
          "\"{}\", \"clip\": {}}}",
          job.words.model, print(shorthand_of(plan)), parameters, inputs, operations, plan.dp, plan.micro_batch,
          plan.micro_batches, name_of(trained.options.optimizer),
          trained.options.clip_norm ? fmt::format("{}", *trained.options.clip_norm) : "None"));
}

}  // namespace weft
