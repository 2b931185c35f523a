// The import in progress: maps every ONNX value to a constant or a tensor of the graph being built.
//
// Node handlers (onnx_operators.h) read their inputs with `value`, `tensor`, `integers` and `scalar`, add
// operators with `op`, and name results with `define`. Constants and parameters enter the graph when
// something first reads them as tensors.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "models/onnx_names.h"
#include "models/onnx_reader.h"

namespace weft {

struct OnnxValue {
  TensorType type;
  std::optional<OnnxTensor> constant = {};  // where its elements are known
  TensorId tensor = {};                     // invalid until it is in the graph
  bool parameter = false;
  PlacedName place = {};          // of a leaf that is not yet in the graph
  std::string transpose_of = {};  // a parameter of which this is the transpose, not yet in the graph
};

class OnnxEmitter {
 public:
  OnnxEmitter(const OnnxModel& model, const OnnxOptions& options, std::string graph_name);

  // Starts a node: the following calls refer to it.
  void begin(const OnnxNode& node);
  const OnnxNode& node() const { return *node_; }
  const Attrs& attrs() const { return node_->attrs; }
  std::int64_t opset() const { return model_.opset; }
  const OnnxModel& model() const { return model_; }
  const OnnxOptions& options() const { return options_; }

  bool given(std::size_t input) const { return input < node_->inputs.size() && !node_->inputs[input].empty(); }
  // An input of the node; an error when it is omitted or was not imported.
  Result<const OnnxValue*> value(std::size_t input);
  Result<Shape> shape(std::size_t input);
  Result<TensorId> tensor(std::size_t input);
  // An input that must be a list of known integers; when it is omitted, `attribute` (older opsets).
  Result<std::vector<std::int64_t>> integers(std::size_t input, std::string_view what, std::string_view attribute = "");
  // The value of an input that is one known number.
  std::optional<double> scalar(std::size_t input);

  // Adds an operator; its name is the node's, with "_part" where given.
  Result<std::vector<TensorId>> op(OpKind kind, std::span<const TensorId> inputs, Attrs attrs = {},
                                   std::string_view part = "");
  Result<TensorId> op1(OpKind kind, std::initializer_list<TensorId> inputs, Attrs attrs = {},
                       std::string_view part = "");
  // Views; none is added where nothing would change.
  Result<TensorId> reshape(TensorId x, const Shape& shape, std::string_view part = "");
  Result<TensorId> transpose(TensorId x, const std::vector<std::int64_t>& perm, std::string_view part = "");

  const TensorType& type(TensorId tensor) const { return builder_.type(tensor); }

  // Names an output of the node.
  void define(std::size_t output, TensorId tensor);
  void define(std::size_t output, OnnxValue value);
  Status alias(std::size_t output, std::size_t input);

  // A leaf in the node's module that the file leaves implicit, such as an initial state.
  Result<TensorId> implicit_input(std::string_view part, DType dtype, Shape shape);
  // The input that a loss compares an output with: `labels`, in the root.
  Result<TensorId> labels(Shape shape);
  // The parameter of an initializer that is not yet in the graph, stored as `shape`.
  Result<TensorId> parameter_as(const std::string& initializer, Shape shape);
  Result<TensorId> tensor_of(const std::string& name);

  OnnxValue* find(const std::string& name);
  GraphBuilder& builder() { return builder_; }

 private:
  Result<TensorId> leaf(OnnxValue& value, const Shape& shape);

  const OnnxModel& model_;
  const OnnxOptions& options_;
  const OnnxNode* node_ = nullptr;
  PlacedName place_;
  GraphBuilder builder_;
  TakenNames op_names_, leaf_names_;
  std::unordered_map<std::string, OnnxValue> values_;
  std::size_t known_elements_ = 0;  // of all constants so far
};

}  // namespace weft
