// Rewrites of the node list before import: what exporters spell out in small operators becomes one node
// again.
//
//   Sub ReduceMean Pow ReduceMean Add Sqrt Div Mul Add   → LayerNormalization
//   Pow ReduceMean Add Sqrt Div Mul Mul                  → RMSNormalization
//   Sigmoid Mul                                          → Swish
//   Div Erf Add Mul Mul                                  → Gelu
//   Pow Mul Add Mul Tanh Add Mul Mul                     → Gelu, approximate="tanh"
//   Slice Concat Unsqueeze of an LSTM's weights          → the initializers themselves (OnnxNode::weights)
//
// Only the last node of a pattern is replaced; the others die with drop_dead_nodes unless something else
// reads them.
#pragma once

#include "models/onnx_reader.h"

namespace weft {

void fuse_patterns(OnnxModel& model);

}  // namespace weft
