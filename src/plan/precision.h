// Which types a plan stores and multiplies in: the word of the command line, the stack's five types, and what the graph
// has of them.
//
// A graph stores parameters and activations in one type. Words for narrower products (fp8, mxfp8, nvfp4) keep bf16
// tensors, tf32 keeps fp32 ones: how fast they multiply is the cost model's. Autocast over fp32 weights (amp-*, and
// stacks whose weights are fp32) is stored as 16-bit weights with the fp32 ones as masters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compile/number_types.h"
#include "graph/dtype.h"
#include "strategy/stack.h"

namespace weft {

struct Precision {
  std::string name;               // "bf16", "fp8", "amp-bf16"
  DType stored = DType::BF16;     // weights and activations of the graph
  DType gradients = DType::BF16;  // accumulators
  bool masters = true;            // an fp32 copy of the weights
  DType moments = DType::F32;     // of the optimizer
  // What products run in, where it is not their operands' type: tf32 all of them, fp8 and fp4 the blocks' linears.
  std::optional<Arithmetic> products = {};
};

// An empty word: the stack's weight type where it has 16 bits, else bf16. Assumptions are added for what was chosen and
// for what is stored differently from the stack.
Result<Precision> choose_precision(std::string_view word, const SoftwareStack& stack,
                                   std::vector<std::string>& assumptions);

// What a step in this precision computes and sends numbers in.
NumberTypes number_types(const Precision& precision, const SoftwareStack& stack);

}  // namespace weft
