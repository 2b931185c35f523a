// Plans that people choose without a search. They are always candidates, so that a search never returns a worse plan.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hybrid/hybrid_plan.h"

namespace weft {

struct BaselineRule {
  std::string name;         // "data parallel"
  std::string description;  // in one line
  std::function<bool(const HybridPlan&)> follows;
  // Of the plans that follow the rule and fit, the fastest of the least rank is taken.
  std::function<int(const HybridPlan&)> rank;
  std::string why_none = "no such plan";  // where no plan follows it
};

// Data parallel · FSDP · HSDP on several nodes · Megatron's 3D rule of thumb · the model's published degrees. `plans`: the
// space, in which rules of thumb look for the largest degrees.
std::vector<BaselineRule> baseline_rules(const PlanProblem& problem, std::span<const HybridPlan> plans);

// Degrees that somebody trained a model of the zoo with; data parallelism takes the devices that are left, and experts
// are cut by tp as everything else.
struct PublishedDegrees {
  std::string_view model;
  std::int32_t tp, cp, pp, vpp, ep;
  std::string_view source;
};
std::span<const PublishedDegrees> published_degrees();

}  // namespace weft
