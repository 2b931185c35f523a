// The options of a search, shared by weft plan and its sweeps: words in, typed requests out.
#pragma once

#include <string>

#include "cli/cost_arguments.h"
#include "hybrid/constraints.h"
#include "plan/plan.h"
#include "report/plan_search.h"
#include "search/find_plan.h"

namespace CLI {
class App;
}

namespace weft {

struct SearchWords {
  PlanRequest request;
  std::string search = "auto", budget, tokens, price, schedules, max_memory;
  ConstraintWords constraints;
  bool any_stack = false;
  CostArguments cost;
  std::int64_t seed = 1, top = 5;
  int threads = 0;
  double headroom = 100 * kHeadroom;  // per cent
};

// Adds what describes the problem, the constraints and the search.
void add_search_words(CLI::App& command, SearchWords& words);

struct SearchRequest {
  PlanRequest request;
  Calibration calibration;
  FindOptions finding;
  PlanTableOptions table;      // tokens and price
  std::vector<double> prices;  // of --price, which has several in a sweep over clusters
};
// Errors name the option at fault.
Result<SearchRequest> settle(const SearchWords& words);

}  // namespace weft
