// Parts of tensors: copied in and out of messages, made from values, and of what type.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "bundle/bundle.h"
#include "run/region.h"
#include "run/values.h"

namespace weft::runtime {

using at::Tensor;

// The type that a tensor is held in; none: this machine has none such.
std::optional<at::ScalarType> stored_type(DType dtype, Numbers numbers);

// Copies between the runs of a device's tensor and a dense part of that shape; types are converted.
void copy_out(const Tensor& held, const Runs& runs, const Tensor& part);
void copy_in(const Tensor& held, const Runs& runs, const Tensor& part);
void add_in(const Tensor& held, const Runs& runs, const Tensor& part);
// The part itself: a view where it lies in one run along every dimension.
Tensor taken(const Tensor& held, const Runs& runs, const Shape& shape);

// A part of a leaf.
Tensor leaf_tensor(const LeafValues& values, TensorId leaf, std::int64_t step, std::int32_t micro_batch,
                   const Region& part, at::ScalarType type);

// One operator on tensors of the types they are stored in. Where they are narrow and the operator is not one that ATen
// computes well in them, it computes in fp32.
std::vector<Tensor> compute(const Signature& signature, const AxisSlices& slices, std::span<const Tensor> inputs,
                            std::uint64_t salt, Numbers numbers);

}  // namespace weft::runtime
