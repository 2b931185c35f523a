// A dense fp64 tensor, or the region of one that a shard holds; addressed by global coordinates.
#pragma once

#include <stdexcept>
#include <vector>

#include "graph/signature.h"

namespace weft::reference {

class Block {
 public:
  // The region of `operand` that a shard with these slices touches, filled with zeros.
  Block(const Signature& signature, const Operand& operand, const AxisSlices& slices) {
    for (std::size_t d = 0; d < operand.dims.size(); ++d)
      add_dim(operand.dims[d].size, positions(signature, operand, d, slices));
    allocate();
  }
  // A whole tensor.
  explicit Block(const Shape& shape) {
    for (std::int64_t extent : shape) {
      std::vector<std::int64_t> all;
      for (std::int64_t i = 0; i < extent; ++i) all.push_back(i);
      add_dim(extent, std::move(all));
    }
    allocate();
  }

  // The region given by extent and positions held, per dimension.
  explicit Block(std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> dims) {
    for (auto& [extent, held] : dims) add_dim(extent, std::move(held));
    allocate();
  }

  bool holds(const std::vector<std::int64_t>& global) const {
    for (std::size_t d = 0; d < held_.size(); ++d)
      if (local_[d][static_cast<std::size_t>(global[d])] < 0) return false;
    return true;
  }
  const std::vector<std::vector<std::int64_t>>& held() const { return held_; }  // global positions held, per dimension
  std::vector<double>& values() { return values_; }
  const std::vector<double>& values() const { return values_; }

  double& at(const std::vector<std::int64_t>& global) {
    std::size_t offset = 0;
    for (std::size_t d = 0; d < held_.size(); ++d) offset = step(offset, d, global[d]);
    return values_[offset];
  }
  // The offset of an element, one dimension after the other.
  std::size_t step(std::size_t offset, std::size_t d, std::int64_t position) const {
    const std::int64_t local = local_[d].at(static_cast<std::size_t>(position));
    if (local < 0) throw std::out_of_range("a shard touches an element outside its region");
    return offset * held_[d].size() + static_cast<std::size_t>(local);
  }
  double at(const std::vector<std::int64_t>& global) const { return const_cast<Block*>(this)->at(global); }

  // Calls f(global coordinates, local offset) for every element held.
  template <class F>
  void for_each(F&& f) const {
    std::vector<std::int64_t> global(held_.size());
    for (std::size_t offset = 0; offset < values_.size(); ++offset) {
      std::size_t rest = offset;
      for (std::size_t d = held_.size(); d-- > 0;) {
        global[d] = held_[d][rest % held_[d].size()];
        rest /= held_[d].size();
      }
      f(global, offset);
    }
  }

  // Takes the elements held from a block that holds at least them.
  void copy_from(const Block& other) {
    for_each([&](const std::vector<std::int64_t>& global, std::size_t offset) { values_[offset] = other.at(global); });
  }

 private:
  void add_dim(std::int64_t extent, std::vector<std::int64_t> held) {
    std::vector<std::int64_t> local(static_cast<std::size_t>(extent), -1);
    for (std::size_t i = 0; i < held.size(); ++i)
      local[static_cast<std::size_t>(held[i])] = static_cast<std::int64_t>(i);
    held_.push_back(std::move(held));
    local_.push_back(std::move(local));
  }
  void allocate() {
    std::size_t size = 1;
    for (const auto& dim : held_) size *= dim.size();
    values_.assign(size, 0.0);
  }

  std::vector<std::vector<std::int64_t>> held_, local_;
  std::vector<double> values_;
};

}  // namespace weft::reference
