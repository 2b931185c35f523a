// What a user demands of every plan: --fix tp=8,cp=1 · --limit vpp=4,mbs=2 · --without zero3,cp,recompute=full ·
// --stack NAME.
//
//   parse_constraints(words)            words → typed clauses, once
//   constraints.allow(parallelism)      the one rule: every space asks it for every plan
//   opened(options, constraints)        the space with what is demanded beyond its usual limits: a fixed schedule,
//                                       micro-batch or context degree is considered even where it would not be
//   why_nothing(…)                      no plan is left: which demand is impossible, why, and the nearest possible
//
// Keys and values are those of the shorthand (strategy/shorthand.h). A stack that was named keeps plans to what it has
// code for (strategy/abilities.h). Not here: memory (--max-memory) and devices, which belong to the training job.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "strategy/abilities.h"
#include "strategy/shorthand.h"

namespace weft {

struct PlanProblem;
struct SpaceOptions;

// As written on the command line; empty: nothing is demanded.
struct ConstraintWords {
  std::string fix = {}, limit = {}, without = {};
};

// What can be demanded of a plan; names are the keys of the shorthand.
enum class Dimension : std::uint8_t {
  Tp,
  Cp,
  Ep,
  Etp,
  Pp,
  Dp,
  Vpp,
  Zero,
  Fsdp,
  Replicate,
  Sp,
  Mbs,
  Ga,
  CpMode,
  Recompute,
  Schedule,
  Full,
  Offload,
  Stages
};
inline constexpr int kDimensions = 19;
std::string_view name_of(Dimension dimension);  // "tp", "cp_mode" …

// The value of a plan: a number, or the word of the shorthand; of full, offload and stages "none", "even" or the text.
using PlanValue = std::variant<std::int64_t, std::string>;
PlanValue value_of(const Parallelism& plan, Dimension dimension);
std::string print(const PlanValue& value);

struct Clause {
  enum class Kind : std::uint8_t { Is, AtMost, IsNot };
  Dimension dimension{};
  Kind kind{};
  PlanValue value;
  std::string words;  // "--fix tp=8", for messages

  bool allows(const Parallelism& plan) const;
};

struct Constraints {
  std::vector<Clause> clauses;
  std::string stack;                       // named by the user; empty: no limit
  Abilities abilities = Abilities::all();  // of that stack

  bool empty() const { return clauses.empty() && abilities == Abilities::all(); }
  bool allow(const Parallelism& plan) const;
  // Whether plans that recompute this are allowed, whatever else they do.
  bool allow_recomputation(Recompute base, const std::vector<std::string>& full) const;
  // The number that a dimension is fixed to.
  std::optional<std::int64_t> fixed(Dimension dimension) const;
  // "--fix tp=8", "plans that pytorch-ddp can run (--any-stack: all)"
  std::vector<std::string> words() const;
};

// Errors name the word at fault and the remedy; two clauses that contradict each other are one.
Result<Constraints> parse_constraints(const ConstraintWords& words);

SpaceOptions opened(SpaceOptions options, const Constraints& constraints, const PlanProblem& problem);

// `plans`: those of the space without the constraints.
Error why_nothing(const Constraints& constraints, std::span<const Parallelism> plans, const PlanProblem& problem);

}  // namespace weft
