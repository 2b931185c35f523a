// The distributed program of a training step as choices: how every operator of the training graph is split, in stages
// between synchronisations (HAP, Zhang et al. 2024).
//
//   minimise  Σ communications + Σ_stages max_devices Σ computations of the stage
//
// A variable is a forward operator with its backward products and the update of its weights, or a tensor that several
// operators read. Its option says how it is split; what two neighbours have to communicate stands in their table. The
// program runs the variables in their order, then their backward parts in the opposite order, then all updates. A
// communication of a forward or a backward part separates the stages before and after it; gradients are reduced between
// backward and the updates and separate nothing else.
//
// Devices of one kind and share do alike and are one class. Times are integer picoseconds, sums are exact.
//
// Not here: what the options of a model are (rules.h), which are best (astar.h, synthesis.h).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "layout/shared_vec.h"
#include "simulate/workload.h"
#include "soap/elimination.h"

namespace weft {

inline constexpr std::size_t kPhases = 3;

// The phases whose stage ends in front of a variable; bit 0 forward, bit 1 backward.
using StageEnds = std::uint8_t;
inline constexpr StageEnds ends_of(Phase phase) { return static_cast<StageEnds>(1u << static_cast<unsigned>(phase)); }

struct ProgramChoices {
  using Computation = std::vector<Picoseconds>;  // by class of devices

  struct Option {
    std::uint32_t form = 0;  // what its neighbours see of it: rows of tables are by form
    std::array<Computation, kPhases> compute;
    Picoseconds communication = 0;
    StageEnds ends = 0;
    std::vector<std::int64_t> memory = {};  // bytes by class of devices; empty: none
  };
  struct Move {
    Picoseconds time = 0;  // kNever: these options exclude each other
    StageEnds ends = 0;

    bool operator==(const Move&) const = default;
  };
  struct Pair {
    VariableId a, b;        // a is before b
    std::size_t table = 0;  // moves by (form of a, form of b), row-major; they are in front of b
  };
  std::size_t classes = 1;
  IdVec<VariableId, SharedVec<Option>> own;  // by variable, in the order of the program; those alike share theirs
  IdVec<VariableId, std::uint32_t> forms;    // how many there are; each has at least one option
  std::vector<Pair> pairs;
  std::vector<std::vector<Move>> tables;

  // Of two options.
  const Move& move(const Pair& pair, std::uint32_t a, std::uint32_t b) const {
    return tables[pair.table][own[pair.a][a].form * forms[pair.b] + own[pair.b][b].form];
  }
};

// Of an assignment of options.
struct StageSum {
  Picoseconds total = 0;  // kNever: some options exclude each other
  Picoseconds communication = 0;
  std::int64_t stages = 0;           // that compute anything
  std::vector<std::int64_t> memory;  // bytes by class
};
StageSum stage_sum(const ProgramChoices& choices, const std::vector<std::uint32_t>& option);

// The stages one after another, each with what it computes by class; the last is that of the updates.
std::vector<ProgramChoices::Computation> stages_of(const ProgramChoices& choices,
                                                   const std::vector<std::uint32_t>& option);

// Prices that make the objective a sum over variables and pairs, never above it: instead of the slowest device of every
// stage the mean of all classes, by weights that are the same in every stage; and a price of memory.
struct LinearPrices {
  static constexpr std::int64_t kWhole = 1 << 20;
  std::vector<std::int64_t> stage, update;  // weights of the classes, of kWhole in all
  std::vector<double> memory = {};          // picoseconds per byte held by each class; empty: free
};
LinearPrices even_prices(std::size_t classes);

Picoseconds weighted(const ProgramChoices::Computation& computation, const std::vector<std::int64_t>& weights);
// The least that the option adds to the objective under these prices.
Picoseconds own_cost(const ProgramChoices::Option& option, const LinearPrices& prices);

// The sum as a problem of elimination. Forms that another one replaces at no more cost, whatever the neighbours do, are
// left out (dead-end elimination: Goldstein 1994), and of the options of a form all but the cheapest.
struct LinearProblem {
  ChoiceProblem choices;
  IdVec<VariableId, std::vector<std::uint32_t>> option;  // of the program, by option of `choices`
};
LinearProblem linear_problem(const ProgramChoices& choices, const LinearPrices& prices);

}  // namespace weft
