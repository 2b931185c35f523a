#include "models/onnx_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "models/onnx_emitter.h"
#include "models/onnx_fold.h"
#include "models/onnx_operators.h"
#include "models/onnx_patterns.h"
#include "models/onnx_reader.h"

namespace weft {
namespace {

const OnnxOperator* operator_named(std::string_view op) {
  static const auto table = [] {
    std::unordered_map<std::string_view, const OnnxOperator*> all;
    for (const auto group :
         {onnx_contractions(), onnx_reductions(), onnx_pointwise(), onnx_movement(), onnx_recurrent()})
      for (const OnnxOperator& entry : group) all.emplace(entry.op, &entry);
    return all;
  }();
  const auto at = table.find(op);
  return at == table.end() ? nullptr : at->second;
}

// An operator whose cost the user gives and whose output shapes the file declares.
Status import_opaque(OnnxEmitter& e, double flops) {
  if (!(flops >= 0 && flops < 1e30)) return error("opaque operator with {} FLOPs; give a non-negative number", flops);
  std::vector<TensorId> inputs;
  for (std::size_t i = 0; i < e.node().inputs.size(); ++i) {
    if (!e.given(i)) continue;
    WEFT_TRY(const TensorId input, e.tensor(i));
    inputs.push_back(input);
  }
  std::string types;
  std::vector<std::size_t> defined;
  for (std::size_t i = 0; i < e.node().outputs.size(); ++i) {
    const std::string& name = e.node().outputs[i];
    if (name.empty()) continue;
    const auto declared = e.model().declared.find(name);
    if (declared == e.model().declared.end())
      return error(
          "opaque, but the file does not declare the shape of its output '{}'; run ONNX shape inference on "
          "the file",
          printable(name));
    types += (types.empty() ? "" : " ") + print(declared->second);
    defined.push_back(i);
  }
  WEFT_TRY(const std::vector<TensorId> outputs, e.op(OpKind::Opaque, inputs, {{"outputs", types}, {"flops", flops}}));
  for (std::size_t i = 0; i < defined.size(); ++i) e.define(defined[i], outputs[i]);
  return Ok{};
}

// Evaluates the node if it only computes with constants.
Result<bool> import_constant(OnnxEmitter& e) {
  const OnnxNode& node = e.node();
  if (node.outputs.empty()) return false;
  if (node.op == "Shape" || node.op == "Size") {
    WEFT_TRY(Shape shape, e.shape(0));
    OnnxTensor result{.type = {DType::I64, {}}, .known = true};
    if (node.op == "Size") {
      result.integers = {1};
      for (const std::int64_t extent : shape)
        if (__builtin_mul_overflow(result.integers[0], extent, &result.integers[0]))
          return error("counts [{}]", fmt::join(shape, ","));
    } else {
      const auto rank = static_cast<std::int64_t>(shape.size());
      const auto clamp = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank); };
      const std::int64_t begin = clamp(node.attrs.integer("start", 0)),
                         end = std::max(begin, clamp(node.attrs.integer("end", rank)));
      result.integers.assign(shape.begin() + begin, shape.begin() + end);
      result.type.shape = {end - begin};
    }
    e.define(0, OnnxValue{.type = result.type, .constant = result});
    return true;
  }
  std::vector<const OnnxTensor*> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(nullptr);
    if (!e.given(i)) continue;
    WEFT_TRY(const OnnxValue* value, e.value(i));
    if (!value->constant) return false;
    inputs.back() = &*value->constant;
  }
  WEFT_TRY(std::optional<OnnxTensor> result, fold(node, inputs));
  if (!result) return false;
  OnnxValue value{.type = result->type};
  if (result->known) value.constant = std::move(result);
  e.define(0, std::move(value));
  return true;
}

Status import_node(OnnxEmitter& e) {
  WEFT_TRY(const bool constant, import_constant(e));
  if (constant) return Ok{};
  const auto& opaque = e.options().opaque;
  if (const auto named = opaque.find(e.node().op); named != opaque.end()) return import_opaque(e, named->second);
  if (const OnnxOperator* known = operator_named(e.node().op)) return known->import(e);
  if (const auto any = opaque.find("*"); any != opaque.end()) return import_opaque(e, any->second);
  const std::string op = printable(e.node().op);
  return error(
      "Weft knows no axes for operator {}; pass --opaque {}=FLOPS to plan around it, with the FLOPs of one "
      "call",
      op, op);
}

// Cross-entropy of every output that looks like logits; the sum of the losses, or nothing when none does.
Result<std::optional<TensorId>> add_losses(OnnxEmitter& e, const std::vector<TensorId>& outputs) {
  OnnxNode node;
  node.name = "loss";
  e.begin(node);
  std::optional<TensorId> total;
  for (const TensorId logits : outputs) {
    const TensorType type = e.type(logits);
    if (!is_floating(type.dtype) || type.shape.size() < 2 || type.shape.size() > 3) continue;
    WEFT_TRY(const TensorId labels, e.labels(Shape(type.shape.begin(), type.shape.end() - 1)));
    const TensorId inputs[] = {logits, labels};
    WEFT_TRY(const std::vector<TensorId> parts, e.op(OpKind::CrossEntropy, inputs, {}, "cross_entropy"));
    WEFT_TRY(const TensorId loss, e.op1(OpKind::NllLoss, {parts[0], parts[1]}));
    if (total) {
      WEFT_TRY(total, e.op1(OpKind::Binary, {*total, loss}, {{"fn", "add"}}, "sum"));
    } else {
      total = loss;
    }
  }
  return total;
}

Result<Graph> import_model(OnnxModel model, std::string_view name, const OnnxOptions& options) {
  fuse_patterns(model);
  drop_dead_nodes(model);
  const std::string graph_name = place_node(name).name;
  OnnxEmitter e(model, options, graph_name.empty() ? "model" : graph_name);
  if (!e.builder().ok()) return e.builder().error();
  for (const OnnxNode& node : model.nodes) {
    e.begin(node);
    const Status status = import_node(e);
    if (!status.ok()) return status.error().at(describe(node));
  }
  std::vector<TensorId> outputs;
  for (const std::string& output : model.outputs) {
    if (!e.find(output)) return error("output '{}' is an optional one that Weft does not compute", printable(output));
    WEFT_TRY(const TensorId tensor, e.tensor_of(output));
    outputs.push_back(tensor);
  }
  std::optional<TensorId> loss;
  if (options.loss) {
    WEFT_TRY(loss, add_losses(e, outputs));
  }
  if (loss) outputs = {*loss};
  for (const TensorId output : outputs) e.builder().result(output);
  return std::move(e.builder()).freeze();
}

}  // namespace

Result<Graph> import_onnx(const std::string& path, const OnnxOptions& options) {
  WEFT_TRY(OnnxModel model, read_onnx_file(path, options));
  auto graph = import_model(std::move(model), std::filesystem::path(path).stem().string(), options);
  return graph.ok() ? std::move(graph) : graph.error().at(path);
}

Result<Graph> import_onnx_bytes(std::string_view bytes, std::string_view name, const OnnxOptions& options) {
  auto model = read_onnx_bytes(bytes, options);
  if (!model.ok()) return model.error().at(name);
  auto graph = import_model(std::move(model).value(), name, options);
  return graph.ok() ? std::move(graph) : graph.error().at(name);
}

}  // namespace weft
