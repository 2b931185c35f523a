// Single words of requests, each parsed in one place: "8k", "15T", "30s", "$2.50".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hybrid/hybrid_plan.h"
#include "problem/budget.h"

namespace weft {

// Tokens of a sample: 4096, or 8k and 128k, of 1,024 each.
Result<std::int64_t> parse_sequence(const std::string& text);
// Tokens of a training run: "300B", "15T", "2e12".
Result<double> parse_tokens(const std::string& text);
// Dollars per GPU-hour: "2.5", "$2.50".
Result<double> parse_price(const std::string& text);
// Several, separated by commas.
Result<std::vector<double>> parse_prices(const std::string& text);
// A number of simulations, 64, or a time, 30s.
Result<SearchBudget> parse_budget(const std::string& text);
// "dgx-h100:16,net=800Gbps" with 4 nodes: "dgx-h100:4,net=800Gbps". None where files or mixtures say how many.
std::optional<std::string> with_nodes(const std::string& cluster, std::int64_t nodes);
// "1f1b,zb-h1"
Result<std::vector<PlanSchedule>> parse_schedules(const std::string& text);

}  // namespace weft
