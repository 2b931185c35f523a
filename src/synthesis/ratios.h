// The best shares of devices for a given program, by linear programming.
//
//   minimise  Σ_stages max_classes computation + Σ_segments slope · largest share
//   shares of every segment sum to 1; every class has the memory for what it holds
//
// A segment is what is cut in one ratio along one axis of the mesh: what is computed (samples, heads, channels, experts),
// or what is stored beyond that (optimizer state, free of the shares of computation).
// Computation and memory are linear in the shares of a class; communication grows with the largest share where parts
// are padded, and not at all where they are grouped.
#pragma once

#include "base/result.h"
#include "synthesis/rules.h"
#include "synthesis/solve.h"

namespace weft {

// In seconds and bytes.
struct RatioProblem {
  struct Share {
    std::size_t segment = 0;
    double count = 1;  // of coordinates that have it
    double least = 0, most = 1;
  };
  struct Linear {
    double constant = 0;
    std::vector<std::pair<std::size_t, double>> slopes = {};  // by share

    double at(const std::vector<double>& shares) const {
      double value = constant;
      for (const auto& [share, slope] : slopes) value += slope * shares[share];
      return value;
    }
  };
  struct Limit {
    Linear held;
    double capacity = 0;
  };
  std::vector<Share> shares;
  double constant = 0;                      // seconds that no share changes
  std::vector<double> padded;               // by segment: seconds per unit of the largest share
  std::vector<std::vector<Linear>> stages;  // by stage and class
  std::vector<Limit> memory;                // by class, where there is a limit

  double cost(const std::vector<double>& shares) const;
  bool fits(const std::vector<double>& shares) const;
};

// By share. An error: no shares fit.
Result<std::vector<double>> best_ratios(const RatioProblem& problem);

// Shares for the program that `option` of `space` says, linearised around the present ones, solved and rounded to whole
// granules.
struct ImprovedShares {
  struct Better {
    SharedMesh mesh;
    SolvedProgram program;  // the same splits with these shares
  };
  std::optional<Better> better;  // if the rounded program costs less (or lacks less memory)
  double bound = 0;              // seconds that the best shares without rounding take, linearised at the last ones
};
std::optional<ImprovedShares> improve_shares(const TrainingGraph& training, const Cluster& cluster,
                                             const CostModel& cost, const ProgramRules& rules,
                                             const ProgramSpace& space, const SolvedProgram& program,
                                             const std::vector<std::int64_t>& capacity);

}  // namespace weft
