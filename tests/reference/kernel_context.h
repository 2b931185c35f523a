// The vocabulary of kernels: named operands, addressed by the positions of the operator's axes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "graph/operators.h"
#include "reference/block.h"

namespace weft::reference {

using At = std::vector<std::int64_t>;  // the global position of every axis

// An operand under the current positions. Absent operands (gradients that are not needed) read as zero.
class Ref {
 public:
  Ref() = default;
  Ref(const Signature& signature, const Operand& operand, Block& block)
      : signature_(&signature), operand_(&operand), block_(&block) {}

  bool present() const { return block_ != nullptr; }
  // Whether the positions are inside the tensor: a window may reach into padding.
  bool inside(const At& at) const {
    for (const DimIndex& dim : operand_->dims)
      if (const std::int64_t index = index_of(dim, at); index < 0 || index >= dim.size) return false;
    return true;
  }
  double& operator()(const At& at) const {
    std::size_t offset = 0;
    for (std::size_t d = 0; d < operand_->dims.size(); ++d)
      offset = block_->step(offset, d, index_of(operand_->dims[d], at));
    return block_->values()[offset];
  }
  // The dimension's index at these positions, and whether it depends on an axis.
  std::int64_t index(std::size_t d, const At& at) const { return index_of(operand_->dims[d], at); }
  bool moves(std::size_t d, std::size_t axis) const {
    const DimIndex& dim = operand_->dims[d];
    for (int factor : dim.factors)
      if (static_cast<std::size_t>(factor) == axis) return true;
    return dim.windowed() && static_cast<std::size_t>(dim.window.kernel) == axis;
  }
  double get(const At& at) const { return present() ? (*this)(at) : 0.0; }
  double& direct(const std::vector<std::int64_t>& global) const { return block_->at(global); }
  const Operand& operand() const { return *operand_; }
  Block& block() const { return *block_; }

 private:
  std::int64_t index_of(const DimIndex& dim, const At& at) const {
    if (dim.windowed())
      return dim.window.stride * at[static_cast<std::size_t>(dim.factors[0])] +
             dim.window.dilation * at[static_cast<std::size_t>(dim.window.kernel)] - dim.window.pad_low;
    std::int64_t index = 0;
    for (int axis : dim.factors)
      index = index * signature_->axes[static_cast<std::size_t>(axis)].size + at[static_cast<std::size_t>(axis)];
    return index;
  }
  const Signature* signature_ = nullptr;
  const Operand* operand_ = nullptr;
  Block* block_ = nullptr;
};

class Kernel {
 public:
  Kernel(const Signature& of, const AxisSlices& shard, std::span<const Block> inputs, std::span<Block> outputs)
      : signature(of), slices(shard), inputs_(inputs), outputs_(outputs) {}

  const Signature& signature;
  const AxisSlices& slices;

  Ref in(std::string_view name) const {
    for (std::size_t i = 0; i < signature.inputs.size(); ++i)
      if (signature.inputs[i].name == name) return Ref(signature, signature.inputs[i], const_cast<Block&>(inputs_[i]));
    return {};
  }
  Ref out(std::string_view name) const {
    for (std::size_t i = 0; i < signature.outputs.size(); ++i)
      if (signature.outputs[i].name == name) return Ref(signature, signature.outputs[i], outputs_[i]);
    return {};
  }
  Ref in(std::size_t i) const { return Ref(signature, signature.inputs[i], const_cast<Block&>(inputs_[i])); }
  Ref out(std::size_t i) const { return Ref(signature, signature.outputs[i], outputs_[i]); }

  std::size_t axis(std::string_view name) const {
    const int index = signature.axis_named(name);
    WEFT_CHECK(index >= 0, "no axis {}", name);
    return static_cast<std::size_t>(index);
  }
  std::int64_t size(std::string_view name) const { return signature.axes[axis(name)].size; }

  // The axes that index `operand`, or all.
  std::vector<std::size_t> axes_of(const Ref& ref) const {
    std::vector<std::size_t> list;
    const AxisSet set = ref.operand().axes();
    for (std::size_t a = 0; a < signature.axes.size(); ++a)
      if (set.contains(static_cast<int>(a))) list.push_back(a);
    return list;
  }
  std::vector<std::size_t> all_axes() const {
    std::vector<std::size_t> list;
    for (std::size_t a = 0; a < signature.axes.size(); ++a) list.push_back(a);
    return list;
  }
  std::vector<std::size_t> axes(std::initializer_list<std::string_view> names) const {
    std::vector<std::size_t> list;
    for (std::string_view name : names)
      if (signature.axis_named(name) >= 0) list.push_back(axis(name));
    return list;
  }

  // Calls f() for all positions of `loop` within the shard's slices, set in `at`; other axes keep their value there.
  template <class F>
  void for_each(const std::vector<std::size_t>& loop, At& at, F&& f, std::size_t depth = 0) const {
    if (depth == loop.size()) return f();
    const std::size_t a = loop[depth];
    for (std::int64_t i = 0; i < slices[a].size(); ++i) {
      at[a] = global_position(slices[a], signature.axes[a].size, i);
      for_each(loop, at, f, depth + 1);
    }
  }
  At start() const { return At(signature.axes.size(), 0); }

 private:
  std::span<const Block> inputs_;
  std::span<Block> outputs_;
};

// One function per family; each returns false when the operator is not of its family.
bool run_contraction(const Kernel& kernel);
bool run_attention(const Kernel& kernel);
bool run_recurrent(const Kernel& kernel);
bool run_normalisation(const Kernel& kernel);
bool run_pointwise(const Kernel& kernel);
bool run_movement(const Kernel& kernel);
bool run_routing(const Kernel& kernel);
bool run_training(const Kernel& kernel);

}  // namespace weft::reference
