// A search, from a user's words to the plans it finds: what `weft plan` prints and what `weft.plan` returns.
//
//   settle_search(request)               every word of it parsed
//   search_plans(request, hooks)         the problem posed and searched
//   simulate_found(searched, 0)          one of its plans played again with its timeline, the winner first
//   write_found(searched, winner, dir)   plan.json, strategy.yaml, trace.json
//   to_json(searched, winner)            docs/schema/plan.schema.json
//
// Errors name the option at fault and the remedy. That nothing fits is an answer: `found.outcome.best` is empty.
// Not here: printing (src/report), options of a command line (src/cli), the searches (src/search).
// Cost: the search's budget; simulate_found: one recorded simulation.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "ask/cost.h"
#include "ask/simulation.h"
#include "hybrid/constraints.h"
#include "report/plan_search.h"
#include "search/find_plan.h"

namespace weft {

struct SearchRequest {
  PlanRequest plan = {};  // its strategy and micro-batch are what is searched
  CostArguments cost = {};
  std::string search = "auto";  // one of kSearchNames
  std::string budget = {};      // "64" simulations or "30s"; empty: until no plan is left that could win
  std::string tokens = {};      // of the whole training: "15T"
  std::string schedules = {};   // "1f1b,zb-h1"; empty: the default ones
  std::string price = {};       // dollars per GPU-hour: "2.5"
  std::string max_memory = {};  // of every device: "70GiB"
  ConstraintWords constraints = {};
  bool any_stack = false;  // also plans that a named stack has no code for
  std::int64_t seed = 1, top = 5;
  int threads = 0;                    // 0: all cores
  double headroom = 100 * kHeadroom;  // per cent of a device's memory that stays free
  std::string tree_file = {};         // the name of a plan that is a strategy tree; empty: named after its search
};

struct SettledSearch {
  SearchRequest request;
  Calibration calibration;
  FindOptions finding;         // without hooks
  PlanTableOptions table;      // tokens, price, constraints
  std::vector<double> prices;  // a sweep over clusters may have several
};
Result<SettledSearch> settle_search(SearchRequest request);

struct SearchHooks {
  const std::atomic<bool>* cancelled = nullptr;  // set to stop the search; what it has found is the answer
  OnProgress progress = {};                      // from threads of the search
  std::function<Status(const PlanProblem&, SpaceOptions&)> admit = {};  // what else the space is limited to
};

struct Searched {
  SearchRequest request;
  PlanProblem problem;
  ChosenCost cost;           // of the problem's job
  EnumerateOptions options;  // for searches of the same kind; without hooks
  PlanTableOptions table;
  FoundPlan found;
};
Result<Searched> search_plans(SearchRequest request, const SearchHooks& hooks = {});

// Plan `index` of found.outcome.best, recorded.
Result<Simulation> simulate_found(const Searched& searched, std::size_t index);

// The files of write_found; the last is written if asked for.
inline constexpr std::array<std::string_view, 3> kFoundFiles = {"plan.json", "strategy.yaml", "trace.json"};
// Makes the folder and checks that the files can be written.
Status make_folder(const std::string& folder, bool trace = false);
// The plan, its tree for --strategy, and if asked for a trace of the step.
Status write_found(const Searched& searched, const Simulation& plan, const std::string& folder, bool trace = false);

// docs/schema/plan.schema.json. `winner`: plan 0, or null where nothing fits. `shorthand` is the winner's name where
// that names its strategy: degrees, or a tree with a file.
nlohmann::json to_json(const Searched& searched, const Simulation* winner);

}  // namespace weft
