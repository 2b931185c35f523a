// The symbolic cost model (SMSG): volumes alone, no profile and no figures of devices or links.
//
// Communication counts by the bytes a rank sends — 2(n−1)/n·V for an all-reduce of V bytes among n, (n−1)/n·V for a
// reduce-scatter, all-gather or all-to-all, V for the rest — and computation by the FLOPs of its contractions. Both are
// in one relative unit, a byte sent; an exchange rate says how many FLOPs one byte is worth. It is a convention, not a
// device's: plans that spread the same work over all devices compare by what they send, whatever it is, and it only
// tells how much communication computation can hide. Between nodes a byte may count more (`between_nodes`).
//
// Times of this model are relative: they order plans and promise no seconds. Everything has the whole of a link.
#pragma once

#include <string>
#include <vector>

#include "cost/cost.h"
#include "cost/symbolic_expression.h"

namespace weft {

// Bytes a rank sends per byte of V, among n devices, n the product of the degrees.
Expression volume_factor(Collective collective, const std::vector<std::string>& degrees);

// An operator's axis, split over some devices.
struct AxisVolume {
  std::string axis;
  AxisKind kind{};
  std::int64_t most = 1;  // parts that the axis' size and granule allow
  Expression compute;     // FLOPs of contractions each device is left with, forward
  // Bytes each device sends, once over forward and backward (graph/placement.h's split_volume): every output that
  // lacks the axis is a partial sum, and so is the gradient of every input that lacks it; windows exchange halos.
  Expression sent;
};
// Of every axis that may be split. Symbols are the axes' names, and `ways`, the number of devices.
struct OperatorVolumes {
  Bindings sizes;
  std::vector<AxisVolume> splits;
};
OperatorVolumes operator_volumes(const Signature& forward);

struct SymbolicOptions {
  double flops_per_byte = 1000;  // that cost as much as sending one byte
  double between_nodes = 1;      // what a byte counts between nodes, over one inside
};

class SymbolicCost final : public CostModel {
 public:
  explicit SymbolicCost(const SymbolicOptions& options = {}) : options_(options) {}

  using CostModel::communicate;
  using CostModel::compute;
  void compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const override;
  void communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const override;
  std::int64_t capacity(const Link& link) const override;
  Interference interference(const DeviceSpec&) const override { return {0, 0, 0}; }

 private:
  SymbolicOptions options_;
};

}  // namespace weft
