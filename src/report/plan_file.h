// plan.json: a found plan, complete. Reproducing its program needs no search and no cost model: the strategy tree fixes
// every layout, and with them every resharding; the fingerprint tells whether the compiler still makes the same
// program.
//
// Versioned; print∘parse∘print = print, byte for byte.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "forecast/forecast.h"
#include "report/plan_search.h"

namespace weft {

struct PlanFile {
  static constexpr int kVersion = 1;

  std::string model, cluster, stack, dtype;
  std::int64_t devices = 0;                // used devices of the cluster, evenly over its nodes; 0: all
  std::int64_t global_batch = 1, seq = 0;  // seq 0: samples have no tokens
  std::string freeze;                      // globs of parameters that are not trained; empty: none
  std::string strategy;                    // shorthand
  std::string tree;                        // YAML
  std::string program;                     // fingerprint of the compiled program's text
  std::string calibration;                 // file of constants that override the built-in ones; empty: none
  std::string optimizer, reduce_dtype;     // as asked for; empty: the usual ones
  std::int64_t max_memory = 0;             // bytes of a device that may be used; 0: all
  double headroom = kHeadroom;             // share of a device's memory that had to stay free
  nlohmann::json prediction;               // as in `weft simulate --json`
  std::vector<std::string> assumptions;
  nlohmann::json provenance;  // the search, its counts, bound and gap

  // The request from which `make_plan` makes the plan again: with the shorthand, or the tree if there is none.
  PlanRequest request() const;
  double predicted_s() const;  // 0: unknown
  bool operator==(const PlanFile&) const = default;
};

// `played` belongs to the plan; `outcome` is that of the search that found it.
PlanFile plan_file(const Plan& plan, const PlayedPlan& played, const Forecast& forecast, const PlanOutcome& outcome,
                   std::string_view search, std::int64_t seed);

std::string print(const PlanFile& file);
// Errors name the file and the key at fault.
Result<PlanFile> parse_plan_file(std::string_view text, std::string_view name);
Result<PlanFile> read_plan_file(const std::string& path);

// "fnv1a:0123456789abcdef"
std::string fingerprint(const Program& program, const Graph& graph);

}  // namespace weft
