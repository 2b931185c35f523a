// The analytic cost model: tiles, waves and memory for computation, latency and bandwidth per algorithm and protocol
// for communication. Equations and constants: operator_cost.cpp and what it includes, tuning.h, presets/cost/*.yaml.
#pragma once

#include <memory>

#include "cost/cost.h"
#include "cost/operator_cost.h"
#include "cost/tuning.h"

namespace weft {

class AnalyticCost final : public CostModel {
 public:
  // The stack determines which operators are fused and whether switches reduce (NVLS). `tuning` outlives the model.
  explicit AnalyticCost(const SoftwareStack& stack, const Tuning& tuning = built_in_tuning());

  using CostModel::communicate;
  using CostModel::compute;
  void compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const override;
  void communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const override;
  std::int64_t capacity(const Link& link) const override;
  Interference interference(const DeviceSpec& device) const override;

 private:
  CommunicateCost cheapest(const CommunicateQuery& query) const;

  const Tuning& tuning_;
  KernelChoice fused_;
  double collective_rate_;
  bool nvls_;
};

}  // namespace weft
