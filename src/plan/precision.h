// The number types in which a plan stores and multiplies: from --dtype, the stack's five types and the graph.
//
// A graph stores parameters and activations in one type. Types of narrower matrix products (fp8, mxfp8, nvfp4) keep
// bf16 tensors, tf32 keeps fp32 ones; the cost model knows how fast they multiply. Autocast over fp32 weights (amp-*,
// and stacks whose weights are fp32) is stored as 16-bit weights with the fp32 ones as master weights.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe.h"
#include "base/result.h"
#include "cluster/device.h"
#include "compile/number_types.h"
#include "graph/dtype.h"
#include "strategy/stack.h"

namespace weft {

struct Precision {
  std::string name;               // "bf16", "fp8", "amp-bf16"
  DType stored = DType::BF16;     // weights and activations of the graph
  DType gradients = DType::BF16;  // accumulators
  bool masters = true;            // fp32 master weights
  bool autocast = false;          // of the graph's operators (graph/autocast.h), by a stack that has it
  DType moments = DType::F32;     // of the optimizer
  // The arithmetic of matrix products, if not their operands' type: tf32 for all, fp8 and fp4 for linears of the
  // blocks; and how those are cast.
  std::optional<Arithmetic> products = {};
  std::optional<Recipe> recipe = {};
  std::optional<DType> sent_gradients = {};  // in which gradients are reduced, where the user says so
};

// The distinct kinds of devices that a job runs on.
using DeviceKinds = std::vector<const DeviceSpec*>;

// `dtype`: as in --dtype; empty: the stack's weight type if that has 16 bits, else bf16, or the next of bf16, fp16 and
// fp32 that all devices multiply in. Adds assumptions for what was chosen and for what is stored differently from the
// stack.
Result<Precision> choose_precision(std::string_view dtype, const SoftwareStack& stack, const DeviceKinds& devices,
                                   std::vector<std::string>& assumptions);

// What stands in for number types that devices have no units for, one sentence for each kind of device: "bf16: v100-32
// has no bf16 units, products run in fp32".
std::vector<std::string> stand_ins(const Precision& precision, const DeviceKinds& devices);

// The types in which a step computes and sends.
NumberTypes number_types(const Precision& precision, const SoftwareStack& stack);

}  // namespace weft
