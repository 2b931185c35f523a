// ONNX → Graph: a model exported by any framework becomes a graph that Weft can plan.
//
// Given a file and options, it makes a frozen forward graph. Weights are never loaded, only their shapes:
// external data is not opened. Shapes come from Weft's own operators and from evaluating the file's small
// integer sub-graphs (`Shape`, `Gather`, `Concat`, …); what the file declares about intermediate shapes is
// used for opaque operators only. Module names follow the scopes in node names ("/layer1/layer1.0/conv1/Conv"
// is operator Conv of layer1.0.conv1).
//
// Parameters are the float initializers, except those of rank 0 whose value is in the file, those the
// metadata property `weft.buffers` names (one per line) and running statistics. Other constants become inputs
// of the graph. Layer normalisation and GELU written out in small operators are recognised; attention stays
// as it is written. Not here: control flow (If, Loop, Scan), local functions, sequences. Cost: linear in the
// nodes, the unrolled steps of an LSTM counted each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "graph/graph.h"

namespace weft {

struct OnnxOptions {
  // Size of symbolic leading dimensions, and of those whose name starts with "batch".
  std::int64_t batch = 1;
  // Sizes of symbolic dimensions by name; they take precedence over `batch`. An unbound dimension is an error.
  std::map<std::string, std::int64_t> dims = {};
  // Operators (op_type) imported as opaque, with the FLOPs of one call: their axes are unknown, so they are never
  // split. "*" stands for every operator that Weft does not know. The file must declare their output shapes.
  std::map<std::string, double> opaque = {};
  // Add a cross-entropy loss to every float output of shape [rows, classes] or [rows, positions, classes],
  // against inputs `labels`; the sum is the graph's result. Without a loss the outputs are the results, and
  // the graph cannot be trained.
  bool loss = true;
};

// Errors name the file, the node, its operator, the value at fault and the remedy.
Result<Graph> import_onnx(const std::string& path, const OnnxOptions& options = {});
// The same from bytes in memory; `name` replaces the file name in errors and names the graph.
Result<Graph> import_onnx_bytes(std::string_view bytes, std::string_view name, const OnnxOptions& options = {});

}  // namespace weft
