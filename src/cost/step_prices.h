// Prices of resharding steps by a cost model: the seconds that each takes alone.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cost/cost.h"
#include "layout/reshard.h"

namespace weft {

class StepPrices final : public StepPrice {
 public:
  // Refers to cluster and cost model. `uneven`: how parts of different sizes are executed; none: whichever is cheaper.
  StepPrices(const Cluster& cluster, const CostModel& cost, std::optional<Parts> uneven = {})
      : cluster_(cluster), cost_(cost), uneven_(uneven) {}

  // The time of the slower of the first and the last group along the axes, as a sample of all groups, whose links may
  // differ. Safe to call from several threads.
  double of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const override;
  Picoseconds time_of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) const;
  double of_parts(Collective collective, MeshAxes axes, Parts parts, const PartSizes& bytes,
                  const Mesh& mesh) const override;

 private:
  struct OfMesh {
    Mesh mesh;
    std::map<std::pair<MeshAxes, Collective>, std::vector<Communicator>> communicators;
  };

  // The lock must be held.
  const std::vector<Communicator>& communicators(Collective collective, MeshAxes axes, const Mesh& mesh) const;
  Picoseconds time_of_parts(Collective collective, MeshAxes axes, Parts parts, const PartSizes& bytes,
                            const Mesh& mesh) const;

  const Cluster& cluster_;
  const CostModel& cost_;
  const std::optional<Parts> uneven_;
  mutable std::mutex mutex_;
  mutable std::vector<OfMesh> known_;
};

}  // namespace weft
