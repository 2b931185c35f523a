// Operators: each is declared once (declarations_*.cpp) by its index notation and a few properties; everything else is
// derived.
//
// Given a kind, its attributes and the types of its inputs, `make_signature` binds the axes and infers the outputs.
// `gradients_of` lists the backward products of a signature; `gradient_signature` derives one: the same axes, another
// operand as the output.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/signature.h"

namespace weft {

enum class OpKind : std::uint8_t {
  // contractions
  Linear,
  ExpertLinear,
  Matmul,
  Conv1d,
  Conv2d,
  Attention,
  LstmCell,
  DotInteraction,
  // normalisation and reduction
  BatchNorm,
  LayerNorm,
  RmsNorm,
  Softmax,
  Pool2d,
  Reduce,
  CrossEntropy,
  NllLoss,
  BceLoss,
  // pointwise
  Unary,
  Binary,
  Select,
  Glu,
  Bias,
  Dropout,
  Rotary,
  // lookup and routing
  Embedding,
  Router,
  AuxLoss,
  Dispatch,
  DispatchWeights,
  WeighRows,
  Combine,
  // movement
  Concat,
  Split,
  Slice,
  Pad,
  Reshape,
  Transpose,
  Expand,
  // training
  Accumulate,
  AccumulateLoss,
  ScaleLoss,
  Sgd,
  Momentum,
  Adam,
  LambUpdate,
  LambApply,
  SumSquares,
  NonFinite,
  AddScalars,
  ClipCoefficient,
  // declared by the user
  Opaque,
};
inline constexpr int kOpKinds = static_cast<int>(OpKind::Opaque) + 1;

std::string_view name_of(OpKind kind);
std::optional<OpKind> op_kind_named(std::string_view name);
std::vector<std::string> op_kind_names();

struct TensorType {
  DType dtype = DType::F32;
  Shape shape;
  bool weight = false;  // a trained parameter: splitting an axis that indexes it is parameter parallelism

  bool operator==(const TensorType&) const = default;
};
std::string print(const TensorType& type);  // "bf16[1,8192,4096]"
Result<TensorType> parse_tensor_type(std::string_view text);

// Binds axes to sizes, checks that the inputs fit, infers the outputs. Errors name the operator, axis and sizes.
Result<Signature> make_signature(OpKind kind, const Attrs& attrs, std::span<const TensorType> inputs);

// Operands of a product over heads that must be copied so that a head's rows lie together (batched products of PyTorch's
// permuted tensors): forward those whose last dimension holds several heads side by side; backward the one that is made,
// or else the incoming gradient.
int head_copies_of(const Signature& signature);

// Whether a bias is added by a kernel of its own, after a convolution: products add theirs.
bool adds_bias(const Signature& signature);

// One way gradients flow back through an operator.
struct Gradient {
  std::string name;                 // "grad_weight"; empty: the gradient passes through unchanged (`x = dy`)
  std::vector<std::string> reads;   // forward inputs or outputs by name, or "d" + an output
  std::vector<std::string> writes;  // "d" + an input
};
// The backward products of a forward signature; empty for an operator that is not differentiable.
std::vector<Gradient> gradients_of(const Signature& forward);

// The signature of a backward product: operands and axes of the forward one, rearranged.
Signature gradient_signature(const Signature& forward, const Gradient& gradient);

}  // namespace weft
