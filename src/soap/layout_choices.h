// A training graph on one mesh as a sum of tables: a variable per operator, an option per way of splitting it over the
// mesh's axes, and the cost of moving what one makes to where another needs it.
//
//   own cost     the operator and its backward products, the reduction of its weights' gradients, the optimizer's step
//   pair cost    the tensor to the layout its reader needs, its gradient back
//   memory       weights with gradients and optimizer state, and what forward keeps for backward, of one device
//
// Everything follows from the layout algebra (layout/layout.h, layout/reshard.h) and is priced one piece at a time;
// what overlaps in a run adds up here. Operators of one signature that share a weight (the steps of a recurrent layer)
// are one variable. Backward is the dual of forward: where an operator splits an axis that an input lacks, the input's
// gradient is a partial sum.
//
// Cost: per distinct edge, the distinct layouts of both ends.
#pragma once

#include "cost/step_prices.h"
#include "graph/training.h"
#include "layout/sharding.h"
#include "soap/elimination.h"

namespace weft {

// What pieces cost, in any unit.
class LayoutPrices {
 public:
  virtual ~LayoutPrices() = default;
  // An operator's part on the device that has most to do.
  virtual std::int64_t compute(const Signature& signature, const AxisSlices& slices) = 0;
  // A step from one layout to another, for elements of a type.
  virtual std::int64_t move(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) = 0;
  // Whether options that leave devices idle on matrix products are left out.
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

// Volumes alone (SMSG), with no constant of any device: bytes that a rank sends. Matrix products are split over all
// devices as far as they go; among plans that send the same, the one that touches less memory: a byte touched counts
// 1/kTouched of a byte sent.
class VolumePrices final : public LayoutPrices {
 public:
  static constexpr std::int64_t kTouched = 1024;
  std::int64_t compute(const Signature& signature, const AxisSlices& slices) override;
  std::int64_t move(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType dtype) override;
  bool balanced() const override { return true; }
};

struct LayoutProblemOptions {
  Bytes memory_limit = {};  // of a device; 0: none
  Bytes quantum = {};       // 0: the limit / 4096; each option's bytes are rounded to the nearest
};

struct LayoutProblem {
  ChoiceProblem choices;
  IdVec<VariableId, std::vector<OpId>> ops;                         // that the variable stands for
  IdVec<VariableId, std::vector<std::vector<std::string>>> splits;  // by option and mesh axis; "": not split
  IdVec<VariableId, std::int64_t> outer;  // blocks inside each of which outputs ("n") are cut: packed keys and values
  Bytes quantum;
};

LayoutProblem make_layout_problem(const TrainingGraph& training, const Mesh& mesh, LayoutPrices& prices,
                                  const LayoutProblemOptions& options = {});

// Explicit for every forward operator.
ShardingChoices sharding_choices(const LayoutProblem& problem, const std::vector<std::uint32_t>& option,
                                 std::size_t mesh_axes);

// Every way to split an operator over the mesh: per mesh axis an axis of the operator, or none.
std::vector<std::vector<std::string>> splits_of(const Signature& signature, const Mesh& mesh, std::int64_t outer = 1);

}  // namespace weft
