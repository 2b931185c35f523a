// Regret on real runs: for every measured run, the plan that `weft plan` finds for its model, cluster, batch, sequence,
// type and stack should be predicted at least as fast as the plan that was run. Both are simulated in full, and the
// search does not see the plan that was run.
//
// The plan that was run did fit its devices. If it does not by the memory model, the search may use as much memory as
// the published plan does by the same model, and the row is marked so.
//
// If the search's plan is slower, `why` has the reason: the published plan is not in the space, its layers cannot be
// composed, or composition ranked it too low. Runs of one problem share a search; problems are searched in parallel,
// and the outcome does not depend on the number of threads. Cost: some seconds per problem.
#pragma once

#include <functional>

#include "hybrid/enumerate.h"
#include "validate/validate.h"

namespace weft {

struct SearchedRow {
  std::string file;
  int line = 0;
  std::string model;
  PlanRequest request;  // as it was run
  double measured_s = 0, published_s = 0, found_s = 0;
  std::int64_t published_bytes = 0, budget = 0;  // of the fullest device, by the memory model
  bool published_fits = true;                    // else the search could use as much memory as it does
  std::string found = {};                        // the winner's shorthand; empty: nothing fits
  std::string why = {};                          // why the search's plan is slower

  bool holds() const { return !found.empty() && found_s <= published_s; }
  double over() const { return found.empty() ? 0 : found_s / published_s - 1; }
};

struct SearchValidation {
  std::vector<SearchedRow> rows;  // by file and line
  std::vector<SkippedRow> skipped;
  std::size_t problems = 0;
  std::int64_t considered = 0, simulated = 0;  // plans of all searches
};

struct SearchedOptions {
  MappingRules rules = {};
  std::string stack = {};
  const Calibration* calibration = nullptr;
  int threads = 0;
  std::function<void(std::size_t done, std::size_t of)> progress = {};  // called from any thread, one call at a time
};

SearchValidation validate_search(const std::vector<MeasuredFile>& files, const SearchedOptions& options = {});

std::string describe(const SearchValidation& validation, std::size_t worst);
std::string json_of(const SearchValidation& validation);  // docs/schema/validate-plan.schema.json

}  // namespace weft
