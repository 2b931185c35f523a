// The symbolic cost model (SMSG): volumes alone, no profile and no figures of devices or links.
//
// The cost of communication is the bytes a rank sends — 2(n−1)/n·V for an all-reduce of V bytes among n, (n−1)/n·V for
// a reduce-scatter, all-gather or all-to-all, V for the rest — and that of computation the FLOPs of its contractions.
// The unit is one byte sent; `flops_per_byte` converts FLOPs. That rate is a convention, not a device's: plans that
// divide the same work evenly over all devices are ordered by the bytes they send at any rate, which only determines
// how much communication can be hidden. Between nodes a byte may count more (`between_nodes`).
//
// Times of this model are relative: they order plans and are not seconds. Communications do not contend for links.
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
  std::int64_t most = 1;  // most parts that the axis' size and granule allow
  Expression compute;     // FLOPs of contractions per device, forward
  // Bytes each device sends, once over forward and backward (graph/placement.h's split_volume): every output that
  // lacks the axis is a partial sum, and so is the gradient of every input that lacks it; windows exchange halos.
  Expression sent;
};
// The volumes of every axis that may be split. Symbols are the axes' names, and `ways`, the number of devices.
struct OperatorVolumes {
  Bindings sizes;
  std::vector<AxisVolume> splits;
};
OperatorVolumes operator_volumes(const Signature& forward);

struct SymbolicOptions {
  double flops_per_byte = 1000;  // FLOPs that cost as much as sending one byte
  double between_nodes = 1;      // cost of a byte between nodes relative to one inside
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
