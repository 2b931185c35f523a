// The best program for given shares, by elimination: the sum of stages is bounded from below by linear prices, whose
// minimum elimination finds exactly, and the prices are moved towards the devices that stages wait for (Lagrangian
// relaxation; memory likewise has a price as long as a device lacks it).
//
// Cost: a few eliminations (soap/elimination.h); near-linear in depth, because equal layers are eliminated once.
#pragma once

#include "synthesis/program_choices.h"

namespace weft {

struct SolveOptions {
  std::vector<std::int64_t> capacity = {};  // bytes by class of devices; empty: no limit, 0: of this class
  int rounds = 5;                           // of prices
};

struct SolvedProgram {
  std::vector<std::uint32_t> option;  // by variable; empty: nothing is possible
  StageSum sum;
  Picoseconds lower_bound = 0;  // on the sum of every program that fits
  LinearPrices prices;          // that gave the bound
  bool fits = true;
  std::int64_t eliminations = 0, distinct = 0;

  double gap() const {
    return lower_bound > 0 ? static_cast<double>(sum.total) / static_cast<double>(lower_bound) - 1 : 0;
  }
};

SolvedProgram solve(const ProgramChoices& choices, const SolveOptions& options = {});

// Bytes over the capacity, of the class that lacks the most.
std::int64_t bytes_over(const StageSum& sum, const std::vector<std::int64_t>& capacity);

}  // namespace weft
