// Lowering: what becomes of each group of tensors when its operators are split as the plan has it.
//
// A tensor has one or more buffers, each in one layout on one mesh. For every turn that needs a tensor, its group finds
// a buffer in the layout wanted (tensor_buffers.h). Backward reads what forward saved (saved_tensors.h); parameters and
// gradients have homes (parameter_homes.h), where gradients accumulate (gradient_sums.h), are summed over homes
// (tied_gradients.h) and are read by the optimizer (optimizer_step.h). Attention may go around a ring (ring.h).
//
// A group is lowered by itself, event by event; what it makes is recorded per event (group_code.h), and the program is
// put together from that (compilation.h). After a change to some operators the groups of their tensors are lowered
// again: what does not depend on the change stays (reuse.h), and what is made alike keeps its number (numbering.h).
// Not here: buckets, bodies.
#pragma once

#include <span>

#include "compile/gradient_sums.h"
#include "compile/optimizer_step.h"
#include "compile/ring.h"
#include "compile/saved_tensors.h"
#include "compile/tied_gradients.h"

namespace weft {

class Lowering {
 public:
  // Everything is kept by reference.
  Lowering(const TrainingGraph& training, const Sequence& sequence, const Placing& placing,
           std::span<const RouteSplit> routes, const CompileOptions& options, Program& program);
  Lowering(const Lowering&) = delete;
  Lowering& operator=(const Lowering&) = delete;

  // No group will be lowered again, so nothing is recorded for that.
  void lower_once() { group_.once = true; }
  // The code of the group's events, with the plan as it is now.
  Result<GroupCode> lower(GroupId group);
  // The same after a change to some operators (`mark_changed`), where it was `before`.
  Result<GroupCode> lower_again(GroupId group, GroupCode& before, Overwritten& journal, Touched& touched);
  void mark_changed(std::span<const OpId> ops, bool changed) { differences_.mark_changed(ops, changed); }

  // The instruction of a turn that is one operator, or of a ring the one that completes it; of other turns invalid.
  InstructionId main(TurnId turn) const { return mains_[turn]; }
  // Writes it, when the groups of its operands have been lowered.
  void write_main(TurnId turn, const IdVec<GroupId, GroupCode>& groups);

  Numbering& numbering() { return numbering_; }
  Origins& origins() { return origins_; }
  Waits& waits() { return waits_; }
  Rings& rings() { return rings_; }

 private:
  Status lower_events(GroupId group, GroupCode& code);
  Status lower_event(const OperandUse& event, EventCode& code);
  Status need(const OperandUse& event, EventCode& code);
  void make(const OperandUse& event, EventCode& code);
  void add_given(TensorId tensor, const Layout& wanted);
  void reduce_scalars(TurnId turn, EventCode& code);
  void write_scalar_inputs(TurnId turn, const IdVec<GroupId, GroupCode>& groups);
  SumScalars sum_of_scalars(TurnId turn, const IdVec<GroupId, GroupCode>& groups) const;

  const Graph& graph_;
  const Sequence& sequence_;
  const CompileOptions& options_;
  Program& program_;
  IdVec<TurnId, InstructionId> mains_;
  const IdVec<TensorId, std::optional<DType>> held_;  // narrower types of tensors (number_types.h)
  GroupCode lowered_;  // grows for one group after the other, so that its lists need not grow anew for each

  // In the order in which they need one another.
  CurrentGroup group_;
  Position position_;
  Origins origins_;
  Waits waits_;
  Numbering numbering_;
  Differences differences_;
  Passages passages_;
  Liveness liveness_;
  TurnSplits splits_;
  Emitter emitter_;
  TensorBuffers buffers_;
  SavedTensors saved_;
  Rings rings_;
  ParameterTensors parameter_tensors_;
  ParameterHomes homes_;
  Reuse reuse_;
  GradientSums gradient_sums_;
  TiedGradients tied_gradients_;
  OptimizerStep optimizer_step_;
};

}  // namespace weft
