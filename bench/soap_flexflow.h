// Communication by the cost model of FlexFlow's own simulator (scripts/simulator.cc of its repository): gradients of a
// parameter's replicas are summed on one of them and sent back, one after another, in
//
//   (devices of a node − 1) · bytes / 4 GB/s + (nodes − 1) · bytes / 1 GB/s
//
// and copies occupy no compute units. Everything else is the analytic model. A ring takes the same time on any number
// of nodes, but this grows with them: 15.75 s per GB on 16 nodes of four, instead of 0.3.
#pragma once

#include <algorithm>

#include "cost/analytic.h"

namespace weft {

inline constexpr double kFlexFlowInside = 4e9, kFlexFlowBetween = 1e9;  // bytes per second

class FlexFlowCost final : public CostModel {
 public:
  explicit FlexFlowCost(const SoftwareStack& stack) : analytic_(stack) {}

  using CostModel::communicate;
  using CostModel::compute;
  void compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const override {
    analytic_.compute(queries, costs);
  }
  void communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const override {
    analytic_.communicate(queries, costs);
    for (std::size_t i = 0; i < queries.size(); ++i) {
      costs[i].sm_share = 0;
      const Communicator& group = *queries[i].communicator;
      if (group.traffic != Traffic::AllReduce || costs[i].bytes == 0) continue;
      const double seconds = static_cast<double>(queries[i].bytes) *
                             ((group.most_per_node - 1) / kFlexFlowInside + (group.nodes - 1) / kFlexFlowBetween);
      if (seconds <= 0) continue;
      const double rate = static_cast<double>(costs[i].bytes) / seconds;
      costs[i].cap = std::clamp(static_cast<std::int64_t>(rate), std::int64_t{1}, costs[i].cap);
    }
  }
  std::int64_t capacity(const Link& link) const override { return analytic_.capacity(link); }
  Interference interference(const DeviceSpec& device) const override { return analytic_.interference(device); }

 private:
  const AnalyticCost analytic_;
};

}  // namespace weft
