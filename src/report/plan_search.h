// `weft plan`: the outcome of a search, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "hybrid/enumerate.h"
#include "search/sensitivity.h"

namespace weft {

struct PlanTableOptions {
  double tokens = 0;                          // of a whole training run; 0: not requested
  double price = 0;                           // dollars per GPU-hour; 0: not requested
  bool seconds = false;                       // print how long the search took
  std::vector<std::string> constraints = {};  // what was demanded: "--fix tp=8"
};

// Where one plan loses time to another, largest first: "pipeline bubble", seconds. Below 0: a gain.
struct Loss {
  std::string what;
  double seconds = 0;
};
std::vector<Loss> losses(const Forecast& of, const Forecast& best);

// What the figures assume, a line each: optimizer and number types, how MFU is counted, what is trained, what was
// demanded, the networks between nodes.
std::vector<std::string> conventions(const PlanProblem& problem, const PlanOutcome& outcome,
                                     const PlanTableOptions& options = {});
// The best plans and the baselines, one per line; time and cost of a training run; the numbers of plans considered.
std::string describe(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options = {});
// If no plan fits: the closest one, the memory it lacks, and remedies.
std::string describe_miss(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options = {});
// Why the winner is fastest: all losses and gains of the others, the winner's memory by stage and its tree.
std::string explain(const PlanOutcome& outcome);
std::string describe(const std::vector<Sensitivity>& sensitivities, const PlanOutcome& outcome);

// docs/schema/plan.schema.json, all but `best`.
nlohmann::json to_json(const PlanProblem& problem, const PlanOutcome& outcome, const PlanTableOptions& options = {});

}  // namespace weft
