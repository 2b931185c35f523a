// A training graph on one mesh as a sum of tables (elimination.h): a variable per operator, an option per way of
// splitting it over the mesh axes, and the cost of resharding tensors between operators.
//
//   own cost     the operator, its backward operators, the reduction of its weights' gradients, the optimizer's step
//   pair cost    resharding of a tensor to the layout that its reader needs, and of its gradient back
//   memory       weights, gradients, optimizer state and saved tensors, on one device
//
// Everything follows from the layout algebra (layout/layout.h, layout/reshard.h). Costs are summed: overlap of
// computation and communication is not modelled. Operators of one signature that share a weight (the steps of a
// recurrent layer) are one variable. Backward is the dual of forward: where an operator splits an axis that an input
// lacks, the input's gradient is a partial sum.
//
// Cost: per distinct edge, the distinct layouts of both ends.
#pragma once

#include "cost/step_prices.h"
#include "graph/training.h"
#include "layout/sharding.h"
#include "soap/elimination.h"

namespace weft {

// Prices of operators and resharding steps, in any unit.
class LayoutPrices {
 public:
  virtual ~LayoutPrices() = default;
  // An operator's part on the busiest device.
  virtual std::int64_t compute(const Signature& signature, const AxisSlices& slices) = 0;
  // One resharding step of a tensor of this type.
  virtual std::int64_t move(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) = 0;
  // Whether splits of matrix products that leave devices idle are excluded.
  virtual bool balanced() const { return false; }
};

// Picoseconds, by a cost model.
class TimePrices final : public LayoutPrices {
 public:
  // Kept by reference.
  TimePrices(const Cluster& cluster, const CostModel& cost, const Mesh& mesh);
  std::int64_t compute(const Signature& signature, const AxisSlices& slices) override;
  std::int64_t move(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) override;

 private:
  const CostModel& cost_;
  const StepPrices steps_;
  std::vector<const DeviceSpec*> specs_;  // distinct
};

// Communication volume only (SMSG), without constants of devices: bytes that a rank sends. Matrix products are split
// over as many devices as possible. Among plans that send the same, the one that accesses less memory wins: a byte
// accessed counts 1/kTouched of a byte sent.
class VolumePrices final : public LayoutPrices {
 public:
  static constexpr std::int64_t kTouched = 1024;
  std::int64_t compute(const Signature& signature, const AxisSlices& slices) override;
  std::int64_t move(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) override;
  bool balanced() const override { return true; }
};

struct LayoutProblemOptions {
  Bytes memory_limit = {};             // of a device; 0: no limit
  Bytes quantum = {};                  // 0: the limit / 4096; each option's bytes are rounded to the nearest
  const SearchClock* clock = nullptr;  // asked for every operator whether to go on
};

struct LayoutProblem {
  ChoiceProblem choices;
  IdVec<VariableId, std::vector<OpId>> ops;                         // operators of the variable
  IdVec<VariableId, std::vector<std::vector<std::string>>> splits;  // by option and mesh axis; "": not split
  IdVec<VariableId, std::int64_t> outer;  // blocks inside each of which outputs ("n") are split: packed keys and values
  Bytes quantum;
  bool stopped = false;  // by the clock: the sum is not complete
};

LayoutProblem make_layout_problem(const TrainingGraph& training, const Mesh& mesh, LayoutPrices& prices,
                                  const LayoutProblemOptions& options = {});

// Explicit choices for every forward operator.
ShardingChoices sharding_choices(const LayoutProblem& problem, const std::vector<std::uint32_t>& option,
                                 std::size_t mesh_axes);

// The layout in which an operand's gradient is computed: a partial sum along the mesh axes that split the operator but
// not the operand; gradients of halos are added to the neighbours' parts.
Layout gradient_made(Layout layout, MeshAxes split);
// The layout in which an output's gradient is needed: that of a partial sum is replicated.
Layout gradient_needed(Layout layout);

// By forward operator: the first of those of its signature that it shares weights with, which are split alike; itself,
// if it shares none. A weight belongs to the first operator that reads it.
IdVec<OpId, OpId> first_of_sharing(const TrainingGraph& training);

// Every way to split an operator over the mesh: per mesh axis an axis of the operator, or none.
std::vector<std::vector<std::string>> splits_of(const Signature& signature, const Mesh& mesh, std::int64_t outer = 1);

}  // namespace weft
