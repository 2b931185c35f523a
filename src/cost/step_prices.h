// Steps of resharding at the price of a cost model: seconds that each takes alone.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cost/cost.h"
#include "layout/reshard.h"

namespace weft {

class StepPrices final : public StepPrice {
 public:
  // Kept by reference.
  StepPrices(const Cluster& cluster, const CostModel& cost) : cluster_(cluster), cost_(cost) {}

  // Of the slower of the first and the last group along the axes: these stand for all, which may lie differently in the
  // cluster. Safe to call from several threads.
  double of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const override;
  Picoseconds time_of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const;

 private:
  struct OfMesh {
    Mesh mesh;
    std::map<std::pair<MeshAxes, Collective>, std::vector<Communicator>> communicators;
  };

  const Cluster& cluster_;
  const CostModel& cost_;
  mutable std::mutex mutex_;
  mutable std::vector<OfMesh> known_;
};

}  // namespace weft
