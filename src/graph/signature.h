// A signature: one operator's axes, and which of them index which operand. It is all that cost, splits and layouts need
// to know, and it is shared: the same layer repeated 96 times has one signature (DistSim's "unique event").
//
//   linear   x[b,s,k] w[k,n] -> y[b,s,n]     b=1 s=8192 k=4096 n=6144
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/attrs.h"
#include "graph/axis.h"
#include "graph/dtype.h"

namespace weft {

enum class OpKind : std::uint8_t;  // operators.h

using Shape = std::vector<std::int64_t>;

// How the partial results of shards of a reduced axis combine.
enum class Reducer : std::uint8_t {
  Sum,
  Max,
  LogSumExp,     // log Σ exp: the lse outputs of attention and cross-entropy
  SoftmaxMerge,  // average weighted by exp(lse of the same operator): attention over a split key axis (online softmax)
};

std::string_view name_of(Reducer reducer);

struct Operand {
  std::string name;
  std::vector<DimIndex> dims;
  DType dtype = DType::F32;
  bool weight = false;             // a trained parameter, or the gradient of one
  Reducer reducer = Reducer::Sum;  // outputs: how shards of an axis that the operand lacks combine
  AxisSet local =
      {};            // outputs: split on one of these axes, each shard keeps a value of its own (BatchNorm statistics)
  int aliases = -1;  // outputs: shares the storage of this input (a view, or an update in place)

  AxisSet axes() const;  // the axes that index it, window kernels included
  Shape shape() const;
  std::int64_t elements() const;
  Bytes bytes() const { return {bytes_of(dtype, elements())}; }
  bool operator==(const Operand&) const = default;
};

struct Signature {
  OpKind kind{};
  std::string gradient;  // "" forward, else which backward product: "grad_input", "grad_weight", "grad"
  Attrs attrs;
  std::vector<Axis> axes;
  std::vector<Operand> inputs, outputs;
  std::vector<AxisSet> contractions;  // each one a sum of products over these axes: 2·Π sizes FLOPs
  double pointwise_per_element = 0;   // other arithmetic per element of the data, not in `contractions`
  // Sets of inputs in which the operator is jointly linear: these partial, the others replicated → outputs partial.
  // Bit i stands for input i; all bits set for all inputs, however many.
  std::vector<std::uint64_t> linear_in;

  int axis_named(std::string_view name) const;  // −1 when there is none
  const Operand& operand(int index) const {     // inputs first, then outputs
    const int count = static_cast<int>(inputs.size());
    return index < count ? inputs[static_cast<std::size_t>(index)] : outputs[static_cast<std::size_t>(index - count)];
  }
  int operand_count() const { return static_cast<int>(inputs.size() + outputs.size()); }

  bool operator==(const Signature&) const = default;
};

// Contraction FLOPs, two per multiply-add. Causal attention counts in full.
Flops contraction_flops(const Signature& signature);
// Everything else: activations, norms, optimizer arithmetic; an estimate per element.
Flops pointwise_flops(const Signature& signature);
// Bytes read and written when nothing is cached between operators; views move none.
Bytes bytes_read(const Signature& signature);
Bytes bytes_written(const Signature& signature);

// "x[b,s,k] w[k,n] -> y[b,s,n]"
std::string notation_of(const Signature& signature);
// "b=1 s=8192 k=4096 n=6144"
std::string axis_sizes_of(const Signature& signature);

// The slice of every axis that one shard executes; index with the axis.
using AxisSlices = std::vector<AxisSlice>;
AxisSlices whole_axes(const Signature& signature);

// Global positions along one dimension of `operand` that a shard with these slices touches, in local order.
// A window's positions are clipped to the dimension; they may overlap a neighbour's (the halo).
std::vector<std::int64_t> positions(const Signature& signature, const Operand& operand, std::size_t dim,
                                    const AxisSlices& slices);
// The operand's local shape under these slices. Cost: O(dims), no allocation but the result.
Shape local_shape(const Signature& signature, const Operand& operand, const AxisSlices& slices);

}  // namespace weft
