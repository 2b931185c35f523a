// Every operator's kernel, forward and backward, whole and on every part of every split, against the reference's loops.
#include "reference/kernels.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "graph/placement.h"
#include "graph/training.h"
#include "reference/operator_cases.h"
#include "reference/run_graph.h"
#include "run/executor.h"
#include "run/kernel.h"
#include "run/tensors.h"

namespace weft {
namespace {

using reference::Block;

constexpr int kInstances = 3;  // random shapes and values per case

at::Tensor tensor_of(const Block& block, DType dtype) {
  std::vector<std::int64_t> shape;
  for (const auto& held : block.held()) shape.push_back(static_cast<std::int64_t>(held.size()));
  const at::Tensor exact = at::empty(shape, at::TensorOptions(at::kDouble));
  std::copy(block.values().begin(), block.values().end(), static_cast<double*>(exact.data_ptr()));
  return exact.to(*runtime::stored_type(dtype, Numbers::Float64));
}

// The way an axis is cut: in two, unevenly, and strided.
std::vector<AxisSlice> slices_of(const Signature& signature, int index) {
  const Axis& axis = signature.axes[static_cast<std::size_t>(index)];
  std::vector<AxisSlice> result = split_evenly(axis, 2);
  if (axis.size >= 3)
    for (const AxisSlice& slice : split_by_sizes(axis, {1, axis.size - 1})) result.push_back(slice);
  bool windowed = false;
  for (int i = 0; i < signature.operand_count(); ++i)
    for (const DimIndex& dim : signature.operand(i).dims)
      windowed = windowed || (dim.windowed() && dim.factors[0] == index);
  if (!windowed && axis.size % 2 == 0 && axis.size >= 4)
    for (const AxisSlice& slice : split_evenly(axis, 2, 2)) result.push_back(slice);
  return result;
}

// Both on one part; what a part of the inputs does not have, neither can read.
std::string difference(const Signature& signature, const AxisSlices& slices, const std::vector<Block>& whole) {
  std::vector<Block> inputs, expected;
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    inputs.emplace_back(signature, signature.inputs[i], slices);
    inputs.back().copy_from(whole[i]);
    tensors.push_back(tensor_of(inputs.back(), signature.inputs[i].dtype));
  }
  for (const Operand& output : signature.outputs) expected.emplace_back(signature, output, slices);
  reference::run_kernel(signature, slices, inputs, expected);
  const std::vector<at::Tensor> actual = runtime::compute(signature, slices, tensors, 0, Numbers::Float64);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor exact = actual[i].to(at::kDouble).contiguous();
    const Shape shape = local_shape(signature, signature.outputs[i], slices);
    if (exact.sizes() != at::IntArrayRef(shape)) return signature.outputs[i].name + " has another shape";
    const auto* const values = static_cast<const double*>(exact.data_ptr());
    for (std::size_t e = 0; e < expected[i].values().size(); ++e) {
      const double want = expected[i].values()[e];
      if (values[e] == want || (std::isnan(values[e]) && std::isnan(want))) continue;
      if (!(std::fabs(values[e] - want) <= 1e-9 * std::max(1.0, std::fabs(want))))
        return fmt::format("{}[{}] is {}, not {}", signature.outputs[i].name, e, values[e], want);
    }
  }
  return "";
}

TEST(Kernels, EveryOperatorOnEveryPartGivesWhatTheReferenceGives) {
  int compared = 0;
  for (const reference::CaseGenerator& generator : reference::operator_cases())
    for (int instance = 0; instance < kInstances; ++instance) {
      Rng rng = Rng(20).split(static_cast<std::uint64_t>(instance));
      const reference::OperatorCase made = generator.make(rng);
      const Result<Graph> forward = reference::case_forward_graph(made);
      ASSERT_TRUE(forward.ok()) << generator.name << ": " << forward.error().message;
      const Result<TrainingGraph> training = make_training_graph(*forward);  // not of what a step itself consists of
      const Graph& graph = training.ok() ? training->graph : *forward;
      const IdVec<TensorId, Block> values = reference::run_graph(
          graph, [&](TensorId id, Block& block) { reference::fill_leaf(made, graph, id, block.values(), rng); });
      for (OpId op : graph.ops().ids()) {
        const Signature& signature = graph.signature(op);
        std::vector<Block> inputs;
        for (TensorId input : graph.inputs(op)) inputs.push_back(values[input]);
        const auto compare = [&](const AxisSlices& slices, const std::string& what) {
          EXPECT_EQ(difference(signature, slices, inputs), "")
              << generator.name << " " << instance << ": " << graph.name(op) << ", " << what << "; "
              << notation_of(signature) << " " << axis_sizes_of(signature) << " " << print(signature.attrs);
          ++compared;
        };
        compare(whole_axes(signature), "whole");
        for (int axis = 0; axis < static_cast<int>(signature.axes.size()); ++axis) {
          if (!splittable(signature, axis)) continue;
          for (const AxisSlice& slice : slices_of(signature, axis)) {
            AxisSlices slices = whole_axes(signature);
            slices[static_cast<std::size_t>(axis)] = slice;
            compare(slices, fmt::format("{} from {} to {} of {}", signature.axes[static_cast<std::size_t>(axis)].name,
                                        slice.begin, slice.end, slice.outer));
          }
        }
      }
    }
  fmt::print("{} parts of operators compared\n", compared);
}

TEST(Kernels, AreThereForEveryOperatorButOpaqueOnes) {
  for (const std::string& name : op_kind_names()) {
    const OpKind kind = *op_kind_named(name);
    Signature signature;
    signature.kind = kind;
    const bool found = runtime::kernel_for(signature) != nullptr;
    EXPECT_EQ(found, kind != OpKind::Opaque) << name;
  }
}

TEST(Kernels, WhatCannotBeRunIsNamedBeforeAnythingRuns) {
  GraphBuilder strange("strange");
  const TensorId x = strange.input("x", DType::F32, {2, 3});
  strange.result(strange.op1(OpKind::Opaque, "det", {x}, {{"outputs", std::string("f32[2,7]")}, {"flops", 5.0}}));
  EXPECT_EQ(runtime::check_kernels(std::move(strange).freeze().value(), Numbers::AsStored).error().message,
            "det: there is no kernel for opaque; the plan cannot be run");
  GraphBuilder narrow("narrow");
  narrow.result(
      narrow.op1(OpKind::Unary, "relu", {narrow.input("x", DType::F8, {2, 3})}, {{"fn", std::string("relu")}}));
  EXPECT_EQ(runtime::check_kernels(std::move(narrow).freeze().value(), Numbers::AsStored).error().message,
            "x: f8 cannot be stored here; choose another --dtype");
}

}  // namespace
}  // namespace weft
