// The ways to store a parameter and to compute its update: whole on every device that uses it, or optimizer state,
// gradient and weight sharded along any subset of the mesh axes that do not cut it already (ZeRO 1, 2, 3). What each way
// communicates, computes and holds follows from the layouts that the compiler would give it (compile/parameter_layout.h).
#pragma once

#include <map>
#include <set>

#include "graph/training.h"
#include "synthesis/priced_layouts.h"
#include "synthesis/rules.h"

namespace weft {

struct Storing {
  MeshAxes optimizer = 0, gradients = 0, weights = 0;  // sharded over these axes beyond the split of the computation
  Picoseconds communication = 0;                       // the gradient's reduction, and gathering the weight
  ProgramChoices::Computation update;                  // by class of devices
  std::vector<std::int64_t> memory;
};

// Bytes of a tensor by class of devices.
std::vector<std::int64_t> held_bytes(const Mesh& mesh, const std::vector<DeviceClass>& classes, const Layout& layout,
                                     DType dtype);

class ParameterWays {
 public:
  // All are kept by reference.
  ParameterWays(const TrainingGraph& training, const SharedMesh& mesh, const std::vector<DeviceClass>& classes,
                const CostModel& cost, PricedLayouts& layouts, const ProgramRules& rules);

  // Given how the parameter is used and in which layout its gradient is made.
  const std::vector<Storing>& of(TensorId parameter, const Layout& used, const Layout& made);
  // Operators of the step that update it.
  const std::vector<OpId>& updates(TensorId parameter) const;

 private:
  std::vector<Storing> make(TensorId parameter, const Layout& used, const Layout& made);
  void add_update(const std::vector<OpId>& ops, TensorId parameter, const Layout& step, const Layout& gradient,
                  Storing& way);

  const Graph& graph_;
  const SharedMesh& mesh_;
  const std::vector<DeviceClass>& classes_;
  const CostModel& cost_;
  PricedLayouts& layouts_;
  const ProgramRules& rules_;
  std::map<TensorId, std::vector<OpId>> updates_;
  std::map<TensorId, TensorId> gradient_of_;
  std::map<std::vector<std::uint32_t>, std::vector<Storing>> known_;
};

}  // namespace weft
