// Which tensors and turns belong to each parameter: its gradient, the terms of that, its optimizer operators.
#pragma once

#include <vector>

#include "compile/sequence.h"

namespace weft {

struct ParameterTensors {
  ParameterTensors(const TrainingGraph& training, const Sequence& sequence);

  IdVec<TensorId, TensorId> parameter_of;         // of the storage of a gradient: its parameter; invalid of others
  IdVec<TensorId, TensorId> gradient_of;          // of a parameter: the storage of its gradient
  IdVec<OpId, TensorId> optimized_by;             // of an optimizer operator: the parameter that it works on
  IdVec<TensorId, std::vector<TurnId>> terms_of;  // of the storage of a gradient: the turns that add to it, in order
};

}  // namespace weft
