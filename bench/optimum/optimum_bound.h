// A step time that no strategy beats which runs some units of operators in given ways (optimum.h): the bound of a
// branch.
//
// All operators — forward, backward, step — are played in their order on the compute streams of their devices; those of
// units that are not assigned yet take the least time that any configuration has, on no device. Between operators that
// are assigned, a change of layout takes its time alone, and so does a transfer that all receivers wait for.
// A gradient that must be summed is, and what a device reduces follows one another. A parameter that two operators read
// is kept by each: gradients are summed on each mesh and sent to the other. Work that is left is spread over all
// devices evenly. Every wait for links takes no time.
#pragma once

#include "soap/judge.h"
#include "soap/proposals.h"

namespace weft {

inline constexpr int kOptimumDevices = 4;

// One way to run a unit: its operators' configurations.
struct UnitChoice {
  std::vector<OpChange> ops;
  unsigned devices = 0;  // bits
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

  // The first `assigned` units are run as chosen. Remembers what moves take.
  Picoseconds of(const std::vector<const UnitChoice*>& chosen, std::size_t assigned);

 private:
  struct Devices;
  // Of accumulations and steps of a parameter that two operators read.
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
  // Of the bound being found.
  const std::vector<const UnitChoice*>* chosen_ = nullptr;
  std::size_t assigned_ = 0;
  IdVec<OpId, Picoseconds> end_;
};

}  // namespace weft
