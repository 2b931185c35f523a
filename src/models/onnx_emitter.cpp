#include "models/onnx_emitter.h"

#include <fmt/format.h>

#include <numeric>

#include "base/check.h"

namespace weft {

namespace {

// An LSTM is unrolled and constants are evaluated, so a small file can ask for any number of operators and
// elements.
constexpr std::size_t kMaxOperators = 100'000, kMaxKnownInAll = 1 << 24;

}  // namespace

OnnxEmitter::OnnxEmitter(const OnnxModel& model, const OnnxOptions& options, std::string graph_name)
    : model_(model), options_(options), builder_(std::move(graph_name)) {
  // The running statistics of batch normalisation are never trained.
  std::unordered_set<std::string> statistics;
  for (const OnnxNode& node : model.nodes)
    if (node.op == "BatchNormalization")
      for (std::size_t i = 3; i < node.inputs.size(); ++i) statistics.insert(node.inputs[i]);
  for (const auto& [name, tensor] : model.initializers) {
    OnnxValue value{.type = tensor.type, .place = place_initializer(name)};
    const bool constant = tensor.known && tensor.type.shape.empty();
    value.parameter = tensor.floating() && !constant && !model.buffers.contains(name) && !statistics.contains(name);
    if (!value.parameter && tensor.known) value.constant = tensor;
    values_.emplace(name, std::move(value));
  }
  // Inputs belong to the root module, in the file's order, with their names unchanged ("input.1").
  for (const auto& [name, type] : model.inputs) {
    OnnxValue value{.type = type, .place = {"", place_node(name).name}};
    if (leaf(value, type.shape).ok()) values_.emplace(name, std::move(value));
  }
}

void OnnxEmitter::begin(const OnnxNode& node) {
  node_ = &node;
  place_ = place_node(node.name);
  if (place_.name.empty()) place_.name = place_node(node.op).name;
  if (place_.name.empty()) place_.name = "node";
}

OnnxValue* OnnxEmitter::find(const std::string& name) {
  const auto at = values_.find(name);
  return at == values_.end() ? nullptr : &at->second;
}

Result<const OnnxValue*> OnnxEmitter::value(std::size_t input) {
  if (!given(input)) return error("input {} is missing", input);
  const OnnxValue* value = find(node_->inputs[input]);
  if (!value)
    return error("reads '{}', an optional output that Weft does not compute", printable(node_->inputs[input]));
  return value;
}

Result<Shape> OnnxEmitter::shape(std::size_t input) {
  WEFT_TRY(const OnnxValue* found, value(input));
  return found->type.shape;
}

Result<TensorId> OnnxEmitter::tensor(std::size_t input) {
  WEFT_TRY_OK(value(input));
  return tensor_of(node_->inputs[input]);
}

Result<TensorId> OnnxEmitter::leaf(OnnxValue& value, const Shape& shape) {
  // An initializer with a generated name ("onnx::MatMul_12") belongs to the module of its first reader.
  if (value.place.module.empty() && value.place.name.starts_with("onnx_")) value.place.module = place_.module;
  if (value.place.name.empty()) value.place.name = "constant";
  const std::string name = leaf_names_.take(value.place.module, value.place.name);
  const auto scope = builder_.scope(value.place.module);
  value.tensor = value.parameter ? builder_.parameter(name, value.type.dtype, shape)
                                 : builder_.input(name, value.type.dtype, shape);
  if (!builder_.ok()) return builder_.error();
  return value.tensor;
}

Result<TensorId> OnnxEmitter::tensor_of(const std::string& name) {
  OnnxValue* found = find(name);
  WEFT_CHECK(found, "no value '{}'", name);
  if (found->tensor.valid()) return found->tensor;
  if (found->transpose_of.empty()) return leaf(*found, found->type.shape);
  WEFT_TRY(const TensorId parameter, tensor_of(found->transpose_of));
  WEFT_TRY(found->tensor, transpose(parameter, {1, 0}, "transposed"));
  return found->tensor;
}

Result<TensorId> OnnxEmitter::parameter_as(const std::string& initializer, Shape shape) {
  OnnxValue* found = find(initializer);
  WEFT_CHECK(found && !found->tensor.valid(), "initializer '{}' is in the graph", initializer);
  return leaf(*found, shape);
}

Result<TensorId> OnnxEmitter::implicit_input(std::string_view part, DType dtype, Shape shape) {
  OnnxValue value{.type = {dtype, std::move(shape)}, .place = {place_.module, fmt::format("{}_{}", place_.name, part)}};
  return leaf(value, value.type.shape);
}

Result<TensorId> OnnxEmitter::labels(Shape shape) {
  OnnxValue value{.type = {DType::I64, std::move(shape)}, .place = {"", "labels"}};
  return leaf(value, value.type.shape);
}

Result<std::vector<std::int64_t>> OnnxEmitter::integers(std::size_t input, std::string_view what,
                                                        std::string_view attribute) {
  if (!given(input)) return attrs().integers(attribute, {});
  WEFT_TRY(const OnnxValue* found, value(input));
  if (!found->constant || found->constant->floating())
    return error("{} ('{}') must be integers known before the model runs", what, printable(node_->inputs[input]));
  return found->constant->integers;
}

std::optional<double> OnnxEmitter::scalar(std::size_t input) {
  const OnnxValue* found = given(input) ? find(node_->inputs[input]) : nullptr;
  return found && found->constant ? found->constant->scalar() : std::nullopt;
}

Result<std::vector<TensorId>> OnnxEmitter::op(OpKind kind, std::span<const TensorId> inputs, Attrs attrs,
                                              std::string_view part) {
  if (builder_.so_far().ops().size() >= kMaxOperators)
    return error("the graph would have more than {} operators", kMaxOperators);
  const std::string wanted = part.empty() ? place_.name : fmt::format("{}_{}", place_.name, part);
  const std::string name = op_names_.take(place_.module, wanted);
  const auto scope = builder_.scope(place_.module);
  std::vector<TensorId> outputs = builder_.op(kind, name, inputs, std::move(attrs));
  if (builder_.ok()) return outputs;
  // The caller names the node in the error, so the builder's operator name is removed from it.
  const std::string prefix = (place_.module.empty() ? name : place_.module + "." + name) + ": ";
  const std::string& message = builder_.error().message;
  return Error{message.starts_with(prefix) ? message.substr(prefix.size()) : message};
}

Result<TensorId> OnnxEmitter::op1(OpKind kind, std::initializer_list<TensorId> inputs, Attrs attrs,
                                  std::string_view part) {
  WEFT_TRY(const std::vector<TensorId> outputs,
           op(kind, std::span(inputs.begin(), inputs.size()), std::move(attrs), part));
  return outputs.front();
}

Result<TensorId> OnnxEmitter::reshape(TensorId x, const Shape& shape, std::string_view part) {
  if (type(x).shape == shape) return x;
  return op1(OpKind::Reshape, {x}, {{"shape", shape}}, part);
}

Result<TensorId> OnnxEmitter::transpose(TensorId x, const std::vector<std::int64_t>& perm, std::string_view part) {
  std::vector<std::int64_t> same(perm.size());
  std::iota(same.begin(), same.end(), 0);
  if (perm == same && type(x).shape.size() == perm.size()) return x;
  return op1(OpKind::Transpose, {x}, {{"perm", perm}}, part);
}

void OnnxEmitter::define(std::size_t output, TensorId tensor) {
  define(output, OnnxValue{.type = type(tensor), .tensor = tensor});
}

void OnnxEmitter::define(std::size_t output, OnnxValue value) {
  if (output >= node_->outputs.size() || node_->outputs[output].empty()) return;
  if (value.constant && (known_elements_ += value.constant->size()) > kMaxKnownInAll) value.constant.reset();
  // A constant that something reads as a tensor is named after the node that makes it.
  if (!value.tensor.valid() && value.place.name.empty()) value.place = place_;
  values_.insert_or_assign(node_->outputs[output], std::move(value));
}

Status OnnxEmitter::alias(std::size_t output, std::size_t input) {
  WEFT_TRY(const OnnxValue* found, value(input));
  OnnxValue copy = *found;
  // A leaf must be one tensor however often it is renamed; constants may yet turn out to be shapes.
  if (!copy.constant && copy.transpose_of.empty()) {
    WEFT_TRY(copy.tensor, tensor(input));
  }
  define(output, std::move(copy));
  return Ok{};
}

}  // namespace weft
