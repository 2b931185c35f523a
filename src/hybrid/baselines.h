// Plans that people choose without a search. They are always candidates, so that a search never returns a worse plan.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "hybrid/hybrid_plan.h"

namespace weft {

struct BaselineRule {
  std::string_view name;         // "data parallel"
  std::string_view description;  // in one line
  // Indices of plans that follow the rule, the most usual first. The first that fits is taken, or with `best` the
  // fastest.
  std::function<std::vector<std::size_t>(std::span<const HybridPlan>)> members;
  bool best = false;
};

// Data parallel · FSDP · HSDP on several nodes · Megatron's 3D rule of thumb. The rules keep a reference to the problem.
std::vector<BaselineRule> baseline_rules(const PlanProblem& problem);

}  // namespace weft
