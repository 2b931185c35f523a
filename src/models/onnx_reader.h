// The content of an ONNX file in plain types, free of protobuf: nodes in topological order, initializers without their
// weights, types.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/attrs.h"
#include "graph/operators.h"
#include "models/onnx_import.h"

namespace weft {

// Tensors with at most this many elements keep their values: enough for every shape computation.
inline constexpr std::int64_t kMaxKnownElements = 4096;

// A constant. Its elements are known when they are few and stored in the file: integers (and booleans) in
// `integers`, floating-point numbers in `reals`.
struct OnnxTensor {
  TensorType type;
  bool known = false;
  std::vector<std::int64_t> integers = {};
  std::vector<double> reals = {};

  bool floating() const { return is_floating(type.dtype); }
  std::size_t size() const { return floating() ? reals.size() : integers.size(); }
  double number(std::size_t i) const { return floating() ? reals[i] : static_cast<double>(integers[i]); }
  // The value of a tensor of one known element.
  std::optional<double> scalar() const { return known && size() == 1 ? std::optional(number(0)) : std::nullopt; }
};

struct OnnxNode {
  std::string op;                            // "Conv"; "com.microsoft::Gelu" outside the standard domain
  std::string name;                          // may be empty
  std::vector<std::string> inputs, outputs;  // "" is an optional one left out
  Attrs attrs;                               // numbers, strings and lists of integers
  std::optional<OnnxTensor> value;           // the attribute `value`
  // LSTM: the initializers that its weights W, R and B are sliced and joined from, in order
  // (onnx_patterns.h).
  std::vector<std::string> weights[3];
};
// "node '/conv1/Conv' (Conv)", for error messages.
std::string describe(const OnnxNode& node);
// A name from a file, fit to be shown: control characters replaced, cut when very long.
std::string printable(std::string_view name);

struct OnnxModel {
  std::int64_t opset = 1;
  std::vector<OnnxNode> nodes;  // in topological order
  std::unordered_map<std::string, OnnxTensor> initializers;
  std::unordered_set<std::string> buffers;                 // initializers listed as not trained (`weft.buffers`)
  std::vector<std::pair<std::string, TensorType>> inputs;  // symbolic dimensions bound
  std::vector<std::string> outputs;
  std::unordered_map<std::string, TensorType> declared;  // of values whose every dimension is known
};

Result<OnnxModel> read_onnx_file(const std::string& path, const OnnxOptions& options);
Result<OnnxModel> read_onnx_bytes(std::string_view bytes, const OnnxOptions& options);

// Drops the nodes that no output of the model depends on, and clears the names of outputs that nothing reads.
void drop_dead_nodes(OnnxModel& model);

}  // namespace weft
