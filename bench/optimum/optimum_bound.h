// A lower bound on the step time of all strategies in which some units of operators have given configurations: the
// bound of a branch (optimum.h).
//
// All operators — forward, backward, optimizer step — run in order on the compute streams of their devices; those of
// units not yet assigned take the least time of any configuration, on no device. Between assigned operators, resharding
// takes its isolated time, and so does a transfer that all receivers wait for. Gradients that need a reduction are
// reduced, and the reductions of a device follow one another. A parameter read by two operators is stored by each:
// gradients are reduced on each mesh and sent to the other. Remaining work is divided evenly over all devices.
// Contention for links is neglected.
#pragma once

#include "soap/judge.h"
#include "soap/proposals.h"

namespace weft {

inline constexpr int kOptimumDevices = 4;

// One choice for a unit: the configurations of its operators.
struct UnitChoice {
  std::vector<OpChange> ops;
  unsigned devices = 0;  // bit set
};

struct OptimumSpace {
  Proposals proposals;
  SoapMeshes meshes;
  std::vector<std::vector<UnitChoice>> choices;  // by unit
};

class OptimumBound {
 public:
  // Both are kept by reference.
  OptimumBound(const SoapProblem& problem, const OptimumSpace& space);

  // The first `assigned` units have the chosen configurations. Caches resharding times.
  Picoseconds of(const std::vector<const UnitChoice*>& chosen, std::size_t assigned);

 private:
  struct Devices;
  // Accumulations and optimizer steps of a parameter read by two operators.
  struct Shared {
    OpId first, second;
    OpId accumulates_first, accumulates_second;
  };

  void find_readers();
  void price_choices();
  void find_work_left();
  std::size_t unit(OpId op) const { return static_cast<std::size_t>(unit_of_[op]); }
  const OpConfig& config(OpId reader, std::size_t choice) const;
  const UnitChoice* choice_of(OpId op) const;
  std::size_t index_of(OpId op, const UnitChoice* choice) const;
  Layout parameter_layout(TensorId parameter, OpId with, const OpConfig& config) const;
  Picoseconds time_of(OpId op, OpId with, const OpConfig& config) const;
  Picoseconds sum_of(OpId op, OpId with, const OpConfig& config, DType dtype) const;
  Picoseconds priced(const Layout& from, const Layout& to, DType dtype) const;
  Picoseconds transferred(const Layout& from, const Layout& to, DType dtype) const;
  Picoseconds moved(OpId from, std::size_t a, OpId to, std::size_t b, std::size_t input);
  bool kept_as_read(OpId op) const;
  Picoseconds step_shared(OpId op, const UnitChoice& first, Devices& devices);
  const std::pair<Picoseconds, Picoseconds>& tied(OpId op, std::size_t a, std::size_t b);

  const SoapProblem& problem_;
  const TrainingGraph& training_;
  const Graph& graph_;
  const OptimumSpace& space_;
  IdVec<OpId, int> unit_of_;
  IdVec<OpId, std::size_t> position_;   // in its unit
  IdVec<OpId, OpId> runs_with_;         // the forward operator whose choice it follows
  IdVec<OpId, TensorId> parameter_of_;  // of accumulations and steps
  IdVec<OpId, std::optional<Shared>> shared_;
  IdVec<OpId, std::vector<Picoseconds>> times_, sums_, rates_;  // by choice
  IdVec<OpId, Picoseconds> least_;
  std::vector<Picoseconds> left_;                             // device time of units from each one to the last
  IdVec<OpId, std::vector<std::vector<Picoseconds>>> moves_;  // by input and both choices; −1: not known yet
  IdVec<OpId, std::vector<std::pair<Picoseconds, Picoseconds>>> tied_;
  // State of the bound being computed.
  const std::vector<const UnitChoice*>* chosen_ = nullptr;
  std::size_t assigned_ = 0;
  IdVec<OpId, Picoseconds> end_;
};

}  // namespace weft
