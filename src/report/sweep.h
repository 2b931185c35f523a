// `weft plan --sweep`: the best plan at every point, as a table with a curve and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "forecast/forecast.h"
#include "problem/outcome.h"
#include "problem/problem.h"

namespace weft {

struct SweepPoint {
  std::string value;  // of what is swept: "8", "32k", "dgx-h100:4"
  std::string cluster;
  std::int64_t devices = 0, global_batch = 0, seq = 0;
  std::optional<Judged> best;
  std::string why_not;  // if there is none
  double lower_bound_s = 0;
  double price = 0;  // dollars per GPU-hour of this cluster; 0: not asked

  // Per second: tokens, or samples where the model has none.
  double rate() const;
  double dollars_per_step() const;
};

struct Sweep {
  std::string over;  // "nodes", "batch" …
  std::string model;
  bool weak = false;
  bool counts_tokens = false;
  double tokens = 0;  // of the whole training; 0: not asked
  bool cancelled = false;
  std::vector<std::string> conventions = {};  // of all points, each once (report/plan_search.h)
  std::vector<SweepPoint> points;

  // The rate per device at this point over that at the first; 0: one of them has no plan.
  double efficiency(std::size_t point) const;
  // The point at which a token, or a sample, costs least; none without prices.
  std::optional<std::size_t> cheapest() const;
};

std::string describe(const Sweep& sweep);
// docs/schema/sweep.schema.json
nlohmann::json to_json(const Sweep& sweep);

}  // namespace weft
