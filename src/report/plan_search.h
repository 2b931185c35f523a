// `weft plan`: what a search found, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "hybrid/enumerate.h"
#include "search/sensitivity.h"

namespace weft {

struct PlanTableOptions {
  double tokens = 0;     // of a whole training; 0: not asked
  bool seconds = false;  // how long the search took
};

// What one plan loses to another by, most first: "pipeline bubble", seconds. Below 0: what it gains.
struct Loss {
  std::string what;
  double seconds = 0;
};
std::vector<Loss> losses(const Forecast& of, const Forecast& best);

// The best plans and the baselines, one a line; what a training takes; what was considered.
std::string describe(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options = {});
// Where nothing fits: what comes closest, what it lacks, and what would help.
std::string describe_miss(const PlanProblem& problem, const PlanOutcome& outcome);
// Why the winner won: everything the others lose and gain, the winner's memory by stage and its tree.
std::string explain(const PlanOutcome& outcome);
std::string describe(const std::vector<Sensitivity>& sensitivities, const PlanOutcome& outcome);

// docs/schema/plan.schema.json, all but `best`.
nlohmann::json to_json(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options = {});

}  // namespace weft
